"""Instants in the viewer's time zone, which a cookie of static/theme.js names.

Only pages have a viewer's zone (`portal.site.zone`). In REST, CSV, mails and tasks, instants are
UTC. Django's active zone is not used: it would also move days and hours of settlement.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from django.utils.translation import gettext, gettext_noop

from portal.charts.figures import utc

COOKIE = "evenshare-zone"
MONTHS = gettext_noop("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")
_VIEWERS: ContextVar[tzinfo | None] = ContextVar("viewers_zone", default=None)


def zone_named(name: str) -> tzinfo | None:
    """Return the time zone of an IANA name, or None if it is unknown."""
    if not _NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


@contextmanager
def viewed_in(zone: tzinfo | None) -> Iterator[None]:
    """Set the viewer's zone for the block; None if it is unknown."""
    before = _VIEWERS.set(zone)
    try:
        yield
    finally:
        _VIEWERS.reset(before)


def viewers_zone() -> tzinfo | None:
    """Return the zone of the page's viewer, or None if it is unknown."""
    return _VIEWERS.get()


def full_text(at: datetime) -> str:
    """Format a wall-clock instant by the viewer's clock: "2026-11-20 14:06:00".

    Without a zone, the word UTC follows, also in `clock_text` and `seconds_text`.
    """
    return _written(at, "%Y-%m-%d %H:%M:%S")


def clock_text(at: datetime) -> str:
    """Format a wall-clock instant by the viewer's clock: "14:06"."""
    return _written(at, "%H:%M")


def seconds_text(at: datetime) -> str:
    """Format a wall-clock instant by the viewer's clock: "14:06:00"."""
    return _written(at, "%H:%M:%S")


def hover_text(at: datetime) -> str:
    """Format a wall-clock instant for a tooltip: the viewer's time, if known, and UTC."""
    return utc(at) if viewers_zone() is None else f"{full_text(at)} ({utc(at)})"


def _zone_of(at: datetime, zone: tzinfo | None) -> tzinfo | None:
    """Return the zone, or None if it would move the instant beyond Python's first or last date."""
    if zone is None:
        return None
    try:
        at.astimezone(zone)
    except OverflowError:
        return None
    return zone


def _written(at: datetime, form: str) -> str:
    zone = _zone_of(at, viewers_zone())
    text = at.astimezone(zone or UTC).strftime(form)
    return text if zone is not None else f"{text} UTC"


def month_name(at: datetime) -> str:
    """Return the short name of an instant's month in the page's language."""
    return gettext(MONTHS).split()[at.month - 1]


def local_text(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Format an instant by the viewer's clock: "14:06" today, "28 Nov 14:06", "28 Nov 2025".

    Without a zone, the word UTC follows. `static/evenshare.js` has the same rule.
    """
    zone = _zone_of(at, zone)
    shown, today = at.astimezone(zone or UTC), now.astimezone(zone or UTC)
    month = month_name(shown)

    if shown.date() == today.date():
        text = f"{shown:%H:%M}"
    elif shown.year == today.year:
        text = f"{shown.day} {month} {shown:%H:%M}"
    else:
        text = f"{shown.day} {month} {shown.year}"
    return text if zone is not None else f"{text} UTC"
