"""Texts about a comparison of lease lengths: figures by length, the recommendation, assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenshare_core.simulation.lease_tuning import WITHIN_PERCENT
from portal.charts.figures import duration, percent, plural
from portal.charts.glyphs import StateBadge
from scheduling.models import Simulation

RECOMMENDED = StateBadge("ok", "recommended")
PRESENT = StateBadge("waiting", "present")


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
    headline = f"{best} would be fairest for these jobs"
    if best_s == present_s:
        headline = f"The present length of {best} is fairest for these jobs"
    return LeaseLengthsView(
        headline=f"{headline}.",
        deck=(
            f"{plural(result['jobs'], 'job')} of the last {plural(result['days'], 'day')} under"
            f" {result['policy']}. Recommended: the fewest jobs below their fair share, among"
            f" lengths with a mean completion time within {WITHIN_PERCENT} % of the shortest."
        ),
        rows=tuple(_length_row(one, best_s, present_s) for one in result["rows"]),
        assumptions=(_restart_text(row.options["restart_s"]), *result["remarks"]),
    )


def _length_row(figures: Mapping[str, Any], best_s: int, present_s: int) -> LengthRow:
    length_s = figures["lease_s"]
    marks = ((RECOMMENDED, best_s), (PRESENT, present_s))
    return LengthRow(
        duration(length_s),
        tuple(badge for badge, at_s in marks if at_s == length_s),
        duration(figures["avg_jct_s"]),
        percent(figures["sharing_loss"], 1),
        percent(figures["overhead_share"], 1),
        figures["preemptions"],
        figures["finished"],
    )


def _restart_text(restart_s: int) -> str:
    if not restart_s:
        return "Restarts take no time here, which favours short leases."
    return f"A job loses {duration(restart_s)} when it is resumed."
