"""Texts of sweeps: the states of their jobs as a bar, and the table of their jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext as _

from portal.charts.bars import BarPart, states_bar
from portal.charts.figures import thousands
from portal.charts.glyphs import StateBadge
from portal.charts.svg import Markup
from portal.jobs.text.job import state_badge
from scheduling.selectors.jobs.sweeps import HELD, SweepCounts, SweepJobRow, SweepRow

# The states in the order of the bar: what has ended comes first.
STATES = ("succeeded", "failed", "cancelled", "running", "pending", HELD)


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
    counted = [
        StateCount(_badge(name), getattr(row.counts, name), f"{url}?state={name}")
        for name in STATES
    ]
    return SweepPanel(
        row,
        states_bar([BarPart(*one.badge, one.count) for one in counted]),
        tuple(one for one in counted if one.count),
        url,
    )


def _badge(state: str) -> StateBadge:
    phase = "pending" if state == HELD else state
    return state_badge(phase, is_quarantined=False, is_held=state == HELD)


def parameter_names(jobs: Iterable[SweepJobRow]) -> list[str]:
    """Return the columns of the table: all parameters, in their order."""
    return list(dict.fromkeys(name for job in jobs for name in job.parameters))


def sweep_job_views(jobs: Iterable[SweepJobRow], names: Sequence[str]) -> list[SweepJobView]:
    return [
        SweepJobView(
            job,
            tuple(job.parameters.get(name, "") for name in names),
            _badge(HELD if job.held else job.phase),
        )
        for job in jobs
    ]


def headline(counts: SweepCounts) -> str:
    """Return what most matters now: what runs, what failed, or that all is done."""
    total = thousands(counts.total)
    if counts.active:
        count = counts.total - counts.active
        text = _("{count} of {total} jobs have ended, {running} run now.")
    elif counts.failed:
        text, count = _("{count} of {total} jobs failed."), counts.failed
    elif counts.cancelled:
        text, count = _("{count} of {total} jobs were cancelled."), counts.cancelled
    else:
        text, count = _("All {total} jobs are done."), counts.total
    return text.format(count=thousands(count), total=total, running=thousands(counts.running))
