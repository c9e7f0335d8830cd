"""Programs for an installation without `make run` (docs/operations.md). They import no Django."""
