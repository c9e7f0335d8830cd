"""Instants inside sentences of the apps below the portal, which know no viewer.

They write an instant in UTC, as "2026-11-20 14:06:00 UTC". REST keeps this form, and pages convert
it.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from portal.charts.notes import PoolClocks

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? UTC)")


def sentence_parts(text: str) -> Iterator[str | datetime]:
    """Yield the parts of a sentence in order: its instants, and the text around them."""
    for place, part in enumerate(_INSTANT.split(text)):
        yield (_instant(part) or part) if place % 2 else part


def local_sentence(text: str, clocks: PoolClocks) -> str:
    """Return a sentence with its instants of pool time as in `Instant.full`, for plain text."""
    parts = (
        instant.full
        if isinstance(part, datetime) and (instant := clocks.instant(part))
        else str(part)
        for part in sentence_parts(text)
    )
    return "".join(parts)


def _instant(text: str) -> datetime | None:
    """Return the instant, or None if there is no such day or time."""
    try:
        return datetime.fromisoformat(text.removesuffix(" UTC")).replace(tzinfo=UTC)
    except ValueError:
        return None
