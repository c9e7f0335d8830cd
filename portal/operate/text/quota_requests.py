"""Requests for quota as text of the console."""

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import plural

STATES = {
    "open": gettext_noop("open"),
    "approved": gettext_noop("approved"),
    "declined": gettext_noop("declined"),
    "withdrawn": gettext_noop("withdrawn"),
}


def open_text(count: int) -> str:
    """Return how many requests are open, as a heading."""
    return plural(count, "open quota request") if count else _("No open quota request")
