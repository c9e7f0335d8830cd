"""Programs for an installation without `make run` (docs/operations.md). They do not import Django."""
