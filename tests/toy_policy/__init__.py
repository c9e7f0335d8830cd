"""A policy of an external author: this package, and one line in the registry."""
