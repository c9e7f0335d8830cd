"""Dates and times as option values."""

from __future__ import annotations

from datetime import datetime, timezone

from evenshare.errors import UsageError


def read_instant(option: str, text: str) -> datetime:
    """Return a date and time in UTC; a date without a time means the start of that day.

    Raises UsageError, which names the option.
    """
    try:
        instant = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(
            f"{option} takes an instant like 2030-01-01T00:00:00Z or a day, not {text!r}"
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=timezone.utc)
    return instant.astimezone(timezone.utc)
