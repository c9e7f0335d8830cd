"""Data of templates/pools/_planned.html: leases that rounds plan for jobs with deadlines."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from portal.charts.figures import plural, thousands
from portal.common.clocks import Clocks
from portal.common.standings import standing_badge
from portal.common.tenant_badges import badge_of
from scheduling.selectors.deadlines.planned_jobs import PlannedDeadlineJob


def planned_context(
    jobs: Sequence[PlannedDeadlineJob], times: Clocks, *, more: bool
) -> dict[str, Any]:
    """Return the rows and their heading; `more`: later ones exist."""
    return {
        "planned": [_planned_row(job, times) for job in jobs],
        "planned_title": _title(jobs, more=more),
    }


def _title(jobs: Sequence[PlannedDeadlineJob], *, more: bool) -> str:
    if more:
        text = _("The next {count} jobs with deadlines, as planned")
        return text.format(count=thousands(len(jobs)))
    return plural(len(jobs), "job with a deadline is planned", "jobs with deadlines are planned")


def _planned_row(job: PlannedDeadlineJob, times: Clocks) -> dict[str, Any]:
    own, story = job.own or (None, None)
    return {
        "own": own,
        "badge": badge_of(job.tenant),
        "job": job,
        "starts": times.instant(job.starts),
        "ends": times.instant(job.ends),
        "standing": standing_badge(story, times) if story is not None else None,
    }
