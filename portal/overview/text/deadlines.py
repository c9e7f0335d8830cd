"""Data of templates/overview/_deadlines.html: a tenant's jobs with deadlines."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from django.utils.translation import gettext as _

from portal.charts.figures import plural, thousands
from portal.common.clocks import Clocks
from portal.common.standings import STANDINGS, standing_badge
from scheduling.models import Job
from scheduling.selectors.deadlines.answers import DeadlineStory

Dated: TypeAlias = tuple[Job, DeadlineStory]


def dated_context(jobs: Sequence[Dated], clocks: Clocks, *, more: bool) -> dict[str, Any]:
    """Return the rows and their heading; `jobs` by deadline, `more`: later jobs exist."""
    return {
        "dated": [{"job": job, "standing": standing_badge(story, clocks)} for job, story in jobs],
        "dated_title": _title(jobs, more=more),
    }


def _title(jobs: Sequence[Dated], *, more: bool) -> str:
    """Return "4 jobs have deadlines: 3 planned, 1 refused"."""
    counts = Counter(story.standing for _job, story in jobs)
    parts = ", ".join(
        f"{thousands(counts[kind])} {_(text)}" for kind, text in STANDINGS.items() if counts[kind]
    )
    if more:
        text = _("The {count} earliest deadlines: {answers}")
        return text.format(count=thousands(len(jobs)), answers=parts)
    return f"{plural(len(jobs), 'job has a deadline', 'jobs have deadlines')}: {parts}"
