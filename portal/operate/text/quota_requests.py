"""Requests for quota as text of the console."""

from django.utils.translation import gettext as _

from portal.charts.figures import plural


def open_text(count: int) -> str:
    """Return how many requests are open, as a heading."""
    return plural(count, "open quota request") if count else _("No open quota request")
