"""A small but whole executor, as a stranger would write one: docs/executors.md walks through it."""
