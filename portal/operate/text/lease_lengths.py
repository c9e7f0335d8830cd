"""Texts about a comparison of lease lengths: figures by length, the recommendation, assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.simulation.lease_tuning import WITHIN_PERCENT
from portal.charts.figures import duration, percent, plural, thousands
from portal.charts.glyphs import StateBadge
from scheduling.models import Simulation
from scheduling.selectors.stored_texts import STORED


@dataclass(frozen=True, slots=True)
class LengthRow:
    """The figures of a lease length, as texts and counts."""

    length: str
    badges: tuple[StateBadge, ...]
    completion: str
    sharing_loss: str
    overhead: str
    preemptions: int
    finished: int


@dataclass(frozen=True, slots=True)
class LeaseLengthsView:
    """The data of a finished comparison's page."""

    headline: str
    deck: str
    rows: tuple[LengthRow, ...]
    assumptions: tuple[str, ...]


def view_lease_lengths(row: Simulation) -> LeaseLengthsView:
    """Return the view of a finished comparison."""
    result: Mapping[str, Any] = row.result or {}
    best_s, present_s = result["recommended"]["lease_s"], result["present_s"]
    best = duration(best_s)
    headline = _("{length} would be fairest for these jobs.")
    if best_s == present_s:
        headline = _("The present length of {length} is fairest for these jobs.")
    return LeaseLengthsView(
        headline=headline.format(length=best),
        deck=f"{_compared_text(result)} {_rule_text()}",
        rows=tuple(_length_row(one, best_s, present_s) for one in result["rows"]),
        assumptions=(
            _restart_text(row.options["restart_s"]),
            *map(STORED.shown, result["remarks"]),
        ),
    )


def _compared_text(result: Mapping[str, Any]) -> str:
    return ngettext(
        "{jobs} of the last {days} day under {policy}.",
        "{jobs} of the last {days} days under {policy}.",
        result["days"],
    ).format(
        jobs=plural(result["jobs"], "job"),
        days=thousands(result["days"]),
        policy=result["policy"],
    )


def _rule_text() -> str:
    return _(
        "Recommended: the fewest jobs below their fair share, among lengths with a mean"
        " completion time within {percent} of the shortest."
    ).format(percent=percent(WITHIN_PERCENT / 100))


def _length_row(figures: Mapping[str, Any], best_s: int, present_s: int) -> LengthRow:
    length_s = figures["lease_s"]
    badges = [
        *([StateBadge("ok", _("recommended"))] if length_s == best_s else []),
        *([StateBadge("waiting", _("present"))] if length_s == present_s else []),
    ]
    return LengthRow(
        duration(length_s),
        tuple(badges),
        duration(figures["avg_jct_s"]),
        percent(figures["sharing_loss"], 1),
        percent(figures["overhead_share"], 1),
        figures["preemptions"],
        figures["finished"],
    )


def _restart_text(restart_s: int) -> str:
    if not restart_s:
        return _("Restarts take no time here, which favours short leases.")
    return _("A job loses {time} when it is resumed.").format(time=duration(restart_s))
