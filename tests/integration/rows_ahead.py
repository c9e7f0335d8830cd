"""What a refused statement says of the constraint that refused it."""

from __future__ import annotations

from django.db import IntegrityError


def constraint_of(error: IntegrityError) -> str | None:
    """The name of the constraint, as the database tells it."""
    name: str | None = error.__cause__.diag.constraint_name  # type: ignore[union-attr]  # psycopg
    return name
