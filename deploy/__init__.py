"""What runs the portal elsewhere than `make run` does; docs/operations.md. No Django in here."""
