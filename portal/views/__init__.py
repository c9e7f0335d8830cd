"""Views: one module per page area."""
