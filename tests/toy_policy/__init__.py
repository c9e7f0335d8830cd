"""A policy as somebody would add one: this package, and one line of the registry."""
