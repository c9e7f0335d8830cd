"""Data of templates/overview/_deadlines.html: a tenant's jobs with deadlines."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from portal.charts.figures import plural
from portal.common.clocks import Clocks
from portal.common.standings import standing_badge
from scheduling.models import Job
from scheduling.selectors.deadlines.answers import DeadlineStanding, DeadlineStory

Dated: TypeAlias = tuple[Job, DeadlineStory]


def dated_context(jobs: Sequence[Dated], clocks: Clocks, *, more: bool) -> dict[str, Any]:
    """Return the rows and their heading; `jobs` by deadline, `more`: later ones exist."""
    return {
        "dated": [{"job": job, "standing": standing_badge(story, clocks)} for job, story in jobs],
        "dated_title": _title(jobs, more=more),
    }


def _title(jobs: Sequence[Dated], *, more: bool) -> str:
    """Return "4 jobs have deadlines: 3 planned, 1 refused"."""
    counts = Counter(story.standing for _, story in jobs)
    parts = ", ".join(f"{counts[kind]} {kind.value}" for kind in DeadlineStanding if counts[kind])
    if more:
        return f"The {len(jobs)} earliest deadlines: {parts}"
    return f"{plural(len(jobs), 'job has a deadline', 'jobs have deadlines')}: {parts}"
