"""The operator's console: a view function per URL; changes go through services."""
