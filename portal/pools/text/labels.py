"""Names of a pool's units and of time windows."""

from collections.abc import Iterable

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from scheduling.selectors.pools.lines import PoolFacts

WINDOW_TEXTS = {
    "day": gettext_noop("day"),
    "week": gettext_noop("week"),
    "month": gettext_noop("month"),
    "year": gettext_noop("year"),
}


def units_text(facts: PoolFacts) -> str:
    """Return what the pool's counts are of, as the heading of a column."""
    return ngettext("slot", "slots", 2) if facts.cpus_only else ngettext("GPU", "GPUs", 2)


def price_unit(facts: PoolFacts) -> str:
    return _("credits per slot-hour") if facts.cpus_only else _("credits per GPU-hour")


def window_choices(windows: Iterable[str]) -> list[tuple[str, str]]:
    """Return the windows with their names, as the options of a form."""
    return [(window, _(WINDOW_TEXTS[window])) for window in windows]
