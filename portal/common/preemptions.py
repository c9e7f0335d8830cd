"""Texts about preemptions: the notice of a lease, and the numbers behind it."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.units import SECOND_US
from portal.charts.figures import credits_text, duration, gpu_hours, thousands
from portal.charts.notes import LineItem, Note
from portal.common.clocks import Clocks
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import rule_text

# Larger numbers of microseconds are an instant after 2001, not a duration.
_INSTANT_US = 10**15


def notice_text(view: PreemptionRow) -> str:
    """Return "Preempted with 30 s notice" or "Moved with 30 s notice"."""
    notice = duration(view.notice_s)
    if view.moved:
        return _("Moved with {time} notice").format(time=notice)
    return _("Preempted with {time} notice").format(time=notice)


def numbers_note(rule: str, numbers: Mapping[str, Any], times: Clocks) -> Note | None:
    """Return the numbers that the rule compared; None if hidden from the viewer or not stored."""
    if not numbers:
        return None
    lines = tuple(_line(name, value, times) for name, value in sorted(numbers.items()))
    return Note(_("Numbers compared by the rule {rule}").format(rule=rule_text(rule)), lines)


def _line(name: str, value: Any, times: Clocks) -> LineItem:
    """Return a number with its label, formatted by the unit in its name."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return LineItem(_label(name), pgettext("number", "none") if value is None else str(value))
    if name.endswith("_gpu_us"):
        hours = gpu_hours(value / SECOND_US)
        return LineItem(f"{_label(name.removesuffix('_gpu_us'))}, GPU-h", hours)
    if name.endswith("_us"):
        at = times.instant(from_us(int(value))) if value >= _INSTANT_US else None
        return LineItem(_label(name.removesuffix("_us")), at.full if at else _length(value))
    if name.endswith("_micro"):
        shown = credits_text(to_credits(int(value)), 4)
        label = _("{number}, credits").format(number=_label(name.removesuffix("_micro")))
        return LineItem(label, shown)
    return LineItem(_label(name), thousands(value, 0 if isinstance(value, int) else 2))


def _length(value: float) -> str:
    return duration(value / SECOND_US)


def _label(name: str) -> str:
    """Return the label of a number; for a number that no longer exists, its name."""
    labels = {
        "attained": pgettext("number", "attained"),
        "deserved": pgettext("number", "deserved"),
        "free": pgettext("number", "free"),
        "held": pgettext("number", "held"),
        "needed": pgettext("number", "needed"),
        "quota": pgettext("number", "quota"),
        "received": pgettext("number", "received"),
        "remaining": pgettext("number", "remaining"),
        "starts": pgettext("number", "starts"),
        "threshold": pgettext("number", "threshold"),
    }
    return labels.get(name, name.replace("_", " "))
