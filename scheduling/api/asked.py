"""What a job was asked for, as answers show it again, and how far away its deadline is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from scheduling.engine.clock import read_clocks
from scheduling.models import Job
from scheduling.selectors.jobs.requests import shown_fields, worded_fields
from tenants.api.times import time_text


def pool_times(jobs: Iterable[Job]) -> dict[int, datetime]:
    """Return what the clocks read of pools in which some of these jobs have a deadline to come.

    One query; none where there are no deadlines.
    """
    pools = {job.pool_id for job in jobs if job.deadline_at is not None and job.is_active}
    return {pool: now.pool_at for pool, now in read_clocks(pools).items()} if pools else {}


def asked_json(job: Job) -> dict[str, object]:
    """Return the fields of a job's request that are shown again.

    Of a job from before a field was there, its default.
    """
    worded = worded_fields(job) | {"deadline": time_text(job.deadline_at) or ""}
    shown: dict[str, object] = {}
    for field in shown_fields():
        value = worded[field.name] if field.name in worded else getattr(job, field.name)
        shown[field.name] = field.default if value is None else value
    return shown


def deadline_left_s(job: Job, at: datetime) -> int | None:
    """Seconds of pool time to the deadline of a job that has not ended; below 0: it is over."""
    if job.deadline_at is None or not job.is_active:
        return None
    return int((job.deadline_at - at).total_seconds())
