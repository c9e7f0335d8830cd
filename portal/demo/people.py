"""The demo's sign-in buttons: a role, and the name of a user."""

DEMO_PEOPLE = {"researcher": "rosa", "manager": "mara", "operator": "otto"}
