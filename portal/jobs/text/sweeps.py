"""Texts of sweeps: the states of their jobs as a bar, and the table of their jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.urls import reverse

from portal.charts.bars import BarPart, states_bar
from portal.charts.glyphs import StateBadge
from portal.charts.svg import Markup
from portal.jobs.text.job import STATE_BADGES
from scheduling.selectors.jobs.sweeps import HELD, SweepCounts, SweepJobRow, SweepRow

HELD_BADGE = StateBadge("waiting", "Held")
# The states in the order of the bar: what has ended comes first.
_BADGES = {
    "succeeded": STATE_BADGES["succeeded"],
    "failed": STATE_BADGES["failed"],
    "cancelled": STATE_BADGES["cancelled"],
    "running": STATE_BADGES["running"],
    "pending": STATE_BADGES["pending"],
    HELD: HELD_BADGE,
}
STATES = tuple(_BADGES)


@dataclass(frozen=True, slots=True)
class StateCount:
    """A state in which some jobs are, and the page that lists them."""

    badge: StateBadge
    count: int
    url: str


@dataclass(frozen=True, slots=True)
class SweepPanel:
    """A sweep with its bar."""

    row: SweepRow
    bar: Markup
    states: tuple[StateCount, ...]
    url: str

    @property
    def ended(self) -> int:
        return self.row.jobs - self.row.counts.active


@dataclass(frozen=True, slots=True)
class SweepJobView:
    """A row of the table: the values of the parameters in the order of the columns."""

    row: SweepJobRow
    values: tuple[str, ...]
    badge: StateBadge


def sweep_views(rows: Iterable[SweepRow]) -> list[SweepPanel]:
    return [_sweep_view(row) for row in rows]


def _sweep_view(row: SweepRow) -> SweepPanel:
    url = reverse("sweep", args=[row.id])
    counted = [(name, getattr(row.counts, name)) for name in STATES]
    return SweepPanel(
        row,
        states_bar([BarPart(_BADGES[name].kind, _BADGES[name].text, n) for name, n in counted]),
        tuple(StateCount(_BADGES[name], n, f"{url}?state={name}") for name, n in counted if n),
        url,
    )


def parameter_names(jobs: Iterable[SweepJobRow]) -> list[str]:
    """Return the columns of the table: all parameters, in their order."""
    return list(dict.fromkeys(name for job in jobs for name in job.parameters))


def sweep_job_views(jobs: Iterable[SweepJobRow], names: Sequence[str]) -> list[SweepJobView]:
    return [
        SweepJobView(
            job,
            tuple(job.parameters.get(name, "") for name in names),
            HELD_BADGE if job.held else STATE_BADGES[job.phase],
        )
        for job in jobs
    ]


def headline(counts: SweepCounts) -> str:
    """Return what most matters now: what runs, what failed, or that all is done."""
    if counts.active:
        done = counts.total - counts.active
        return f"{done:,} of {counts.total:,} jobs have ended, {counts.running:,} run now."
    if counts.failed:
        return f"{counts.failed:,} of {counts.total:,} jobs failed."
    if counts.cancelled:
        return f"{counts.cancelled:,} of {counts.total:,} jobs were cancelled."
    return f"All {counts.total:,} jobs are done."
