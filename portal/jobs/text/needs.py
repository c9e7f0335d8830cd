"""Texts of the jobs that a job waits for."""

from typing import Any, NamedTuple

from portal.charts.glyphs import StateBadge
from portal.jobs.text.job import state_badge
from scheduling.models import Job
from scheduling.selectors.jobs.sweeps import NeedRow, needs_of_job


class NeedView(NamedTuple):
    """A needed job, and the badge of its state."""

    row: NeedRow
    badge: StateBadge


def needs_context(job: Job) -> dict[str, Any]:
    """Return the data of templates/jobs/_needs.html, and a job's sweep. Two queries at most."""
    rows = [
        NeedView(row, state_badge(row.state, is_quarantined=False)) for row in needs_of_job(job)
    ]
    return {
        "sweep": job.sweep,
        "waits_on": rows,
        "waits": sum(not one.row.is_met for one in rows) if job.is_active else 0,
        "broken": next((one for one in rows if one.row.is_broken), None),
    }
