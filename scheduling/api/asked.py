"""The fields of a job's request that answers contain, and the time to its deadline."""

from collections.abc import Iterable
from datetime import datetime

from scheduling.engine.clock import read_clocks
from scheduling.models import Job
from scheduling.selectors.jobs.requests import shown_fields, worded_fields
from tenants.answers import time_text


def pool_times(jobs: Iterable[Job]) -> dict[int, datetime]:
    """Return the present pool time of each pool in which one of these jobs has a deadline ahead.

    Runs one query, or none if no job has a deadline.
    """
    pools = {job.pool_id for job in jobs if job.deadline_at is not None and job.is_active}
    return {pool: now.pool_at for pool, now in read_clocks(pools).items()} if pools else {}


def asked_json(job: Job) -> dict[str, object]:
    """Return the fields of a job's request that answers contain.

    Fields that did not exist when the job was submitted have their defaults.
    """
    worded = worded_fields(job) | {
        "deadline": time_text(job.deadline_at) or "",
        "not_before": time_text(job.not_before) or "",
    }
    shown: dict[str, object] = {}
    for field in shown_fields():
        value = worded[field.name] if field.name in worded else getattr(job, field.name)
        shown[field.name] = field.default if value is None else value
    return shown


def deadline_left_s(job: Job, at: datetime) -> int | None:
    """Return the seconds of pool time until an active job's deadline; negative if it has passed.

    Return None if the job has no deadline or has ended.
    """
    if job.deadline_at is None or not job.is_active:
        return None
    return int((job.deadline_at - at).total_seconds())
