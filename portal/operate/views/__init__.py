"""The operator's console: one view function per address; changes go through services."""
