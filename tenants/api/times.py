"""Instants as the API reads and writes them."""

from __future__ import annotations

from datetime import UTC, datetime

from rest_framework.request import Request

from tenants.input import readers
from tenants.input.errors import FieldErrors


def read_time(request: Request, name: str) -> datetime | None:
    """Return an instant of the query in UTC; None where it is left out.

    Raises:
        InvalidInputError: it is none, or has no zone.
    """
    errors = FieldErrors()
    instant = readers.instant(request.query_params, name, errors)
    errors.raise_any()
    return instant


def time_text(instant: datetime | None) -> str | None:
    """Return an instant as RFC 3339 in UTC with microseconds; None stays None."""
    if instant is None:
        return None
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
