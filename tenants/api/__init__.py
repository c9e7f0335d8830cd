"""The base of the REST API (authentication, cursors, problems), and API tokens."""
