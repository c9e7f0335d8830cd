"""The texts of scripts in the page's language, which templates/base.html gives to it.

A script calls `text("{time} ago", { time: "3 s" })` with the English text. A test compares the
texts of the scripts with this list.
"""

from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

from portal.charts.zones import MONTHS

TEXTS = (
    _("now"),
    _("{time} ago"),
    _("in {time}"),
    _("ends now"),
    _("{time} left"),
    _("next round in {time}"),
    _("next round due"),
    MONTHS,
    _("Live again."),
    _("The server does not answer since {time}. What you see may be out of date."),
    _("since {time}, wall clock"),
    _("{count} selected."),
    _("None selected."),
    _("Selected"),
    _("Copied"),
    _("none"),
    _("{quota} of {capacity}"),
    _("{count} too many: scaled down"),
    _("{count} unallocated"),
    _("Preview again: the draft has changed"),
    _("%b %-d"),
    _("%b %-d, %Y"),
    _("Use the arrow keys to read each point."),
    _("Range"),
    _("Series"),
    _("Download as PNG"),
    _("Download as CSV: all series, whole range"),
    _("{name} is being saved."),
    _("{title}, without {count} series"),
    _("{title}, without {name} and {other}"),
    _("{title}, without {name}"),
)


def script_texts() -> dict[str, str]:
    """Return the translations by their English texts; empty for English."""
    return {} if get_language() == "en" else {text: gettext(text) for text in TEXTS}
