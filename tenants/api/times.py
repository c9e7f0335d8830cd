"""Instants of the API: parsing and formatting."""

from datetime import datetime

from rest_framework.request import Request

from tenants.input import readers
from tenants.input.errors import FieldErrors


def read_time(request: Request, name: str) -> datetime | None:
    """Return an instant of the query in UTC, or None if it is missing.

    Raises:
        InvalidInputError: it is invalid, or has no zone.
    """
    errors = FieldErrors()
    instant = readers.instant(request.query_params, name, errors)
    errors.raise_any()
    return instant
