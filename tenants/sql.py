"""Rows of an SQL query."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection


def fetch_rows(
    query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Return all rows of a query. Without parameters, a percent sign is not doubled."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
