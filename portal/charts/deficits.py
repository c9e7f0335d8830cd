"""The hourly deficit of a tenant's last day, from the sums that its charts use."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from portal.charts.figures import gpu_hours, percent
from portal.charts.notes import LineItem
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.histories import ClaimHistoryPoint

HOUR = timedelta(hours=1)
HOURS = 24


@dataclass(frozen=True, slots=True)
class DayDeficit:
    """The GPU-seconds deserved on the last day, and those not received within their hour."""

    short_gpu_s: float
    deserved_gpu_s: float

    @property
    def share(self) -> float:
        """Return the deficit as a fraction of the deserved GPU-time."""
        return self.short_gpu_s / self.deserved_gpu_s

    @property
    def line(self) -> LineItem:
        return LineItem(_("hourly deficit, last 24 h"), f"{gpu_hours(self.short_gpu_s)} GPU-h")

    @property
    def text(self) -> str:
        return _(
            "Of the {deserved} GPU-h of the last 24 h, {short} ({part}) were not received in the"
            " hour in which they were deserved. GPU-time received later does not make up for it."
        ).format(
            deserved=gpu_hours(self.deserved_gpu_s),
            short=gpu_hours(self.short_gpu_s),
            part=percent(self.share, 1),
        )


def has_deficits(pool: PoolFacts) -> bool:
    """Return whether the pool's sums run since its start, not over a window."""
    options = pool.policy_options
    return options is not None and not options.fairness_window_us


def day_deficit(points: Sequence[ClaimHistoryPoint], now: datetime) -> DayDeficit | None:
    """Compute the deficit from cumulative sums, oldest first. Return None if nothing was deserved.

    All GPU types are added up. The fair share of a job that accepts several types may be counted
    on a type that it does not hold.
    """
    sums: dict[str, tuple[float, float]] = {}
    rounds: dict[datetime, list[ClaimHistoryPoint]] = {}
    for point in points:
        rounds.setdefault(point.at, []).append(point)
    totals: list[tuple[datetime, tuple[float, float]]] = []
    for at, rows in sorted(rounds.items()):
        for row in rows:
            sums[row.gpu_type] = (row.received_gpu_s, row.deserved_gpu_s)
        received, deserved = (sum(pair[place] for pair in sums.values()) for place in (0, 1))
        totals.append((at, (received, deserved)))
    return deficit_of(totals, now)


def deficit_of(
    totals: Sequence[tuple[datetime, tuple[float, float]]], now: datetime
) -> DayDeficit | None:
    """Compute the deficit from cumulative (received, deserved) GPU-seconds, oldest round first.

    Hours are counted back from `now` and end with their last available round. Only some rounds of a
    day are available, so the start and end of an hour may be off by a few minutes. A sum that falls
    after a correction counts as 0.
    """
    since = now - HOURS * HOUR
    # Each hour, with the sums at its last round.
    marks = {min(HOURS - 1, (at - since) // HOUR): pair for at, pair in totals}
    short = whole = 0.0
    before = totals[0][1] if totals else (0.0, 0.0)
    for _hour, mark in sorted(marks.items()):
        got, fair = (max(0.0, now_ - then) for now_, then in zip(mark, before, strict=True))
        short, whole, before = short + max(0.0, fair - got), whole + fair, mark
    return DayDeficit(short, whole) if whole else None
