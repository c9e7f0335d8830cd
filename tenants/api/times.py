"""Instants as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(instant: datetime | None) -> str | None:
    """Return an instant as RFC 3339 in UTC with microseconds; None stays None."""
    if instant is None:
        return None
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
