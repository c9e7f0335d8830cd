"""Whom the demo lets in by a button: a role, and the name of a user."""

DEMO_PEOPLE = {"researcher": "rosa", "manager": "mara", "operator": "otto"}
