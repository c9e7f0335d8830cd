"""Data of templates/jobs/_deadline.html: a job's deadlines and its stopping criterion."""

import re
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.instants import from_us
from evenshare_core.units import REWARD_MICRO
from portal.charts.figures import duration
from portal.common.clocks import Clocks
from scheduling.models import Job
from scheduling.selectors.deadlines.instants import deadline_steps_of
from scheduling.selectors.jobs.requests import worded_fields

TITLES = {
    Job.JobClass.STRICT_SLO: gettext_noop("Strict deadline"),
    Job.JobClass.SOFT_SLO: gettext_noop("Soft deadline"),
}


def deadline_context(job: Job, clocks: Clocks) -> dict[str, Any]:
    """Return the rows of a job's deadline, and its stopping criterion."""
    steps = deadline_steps_of(job)
    return {
        "deadline_title": _title(job, clocks) if steps else "",
        "deadline_rows": [
            {
                "at": clocks.instant(from_us(step.by_us)),
                "points": Decimal(step.reward_micro) / REWARD_MICRO,
            }
            for step in steps
        ],
        "stop_when": worded_fields(job)["stop_when"],
    }


def stop_criterion_text(job: Job) -> str:
    """Return the job's criterion with spaces, such as "accuracy >= 0.93"."""
    return re.sub(r"([<>]=)", r" \1 ", str(worded_fields(job)["stop_when"]))


def _title(job: Job, clocks: Clocks) -> str:
    """Return the job class, and the pool time that is left."""
    title = _(TITLES[Job.JobClass(job.job_class)])
    if job.deadline_at is None or not job.is_active:
        return title
    left_s = (job.deadline_at - clocks.now.pool_at).total_seconds()
    if left_s <= 0:
        return _("{title}: it is over").format(title=title)
    return _("{title}: {time} left").format(title=title, time=duration(left_s))
