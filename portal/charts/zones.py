"""Instants in the viewer's time zone, which a cookie of static/theme.js names."""

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from django.utils.translation import gettext, gettext_noop

COOKIE = "evenshare-zone"
MONTHS = gettext_noop("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")


def zone_named(name: str) -> tzinfo | None:
    """Return the time zone of an IANA name, or None if it is unknown."""
    if not _NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def month_name(at: datetime) -> str:
    """Return the short name of an instant's month in the page's language."""
    return gettext(MONTHS).split()[at.month - 1]


def local_text(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Format an instant by the viewer's clock: "14:06" today, "28 Nov 14:06", "28 Nov 2025".

    Without a zone, the word UTC follows. `static/evenshare.js` has the same rule.
    """
    shown, today = at.astimezone(zone or UTC), now.astimezone(zone or UTC)
    month = month_name(shown)

    if shown.date() == today.date():
        text = f"{shown:%H:%M}"
    elif shown.year == today.year:
        text = f"{shown.day} {month} {shown:%H:%M}"
    else:
        text = f"{shown.day} {month} {shown.year}"
    return text if zone is not None else f"{text} UTC"
