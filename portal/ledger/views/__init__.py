"""Views of ledgers."""
