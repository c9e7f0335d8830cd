"""A small but complete executor, as an external author would write it; see docs/executors.md."""
