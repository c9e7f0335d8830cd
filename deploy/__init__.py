"""Programs for installations that do not use `make run` (docs/operations.md).

They do not import Django.
"""
