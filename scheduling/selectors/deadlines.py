"""Deadlines of a job as instants."""

from __future__ import annotations

from evenshare_core.deadlines.declared import dated_steps, read_steps
from evenshare_core.domain.deadlines import DeadlineClass, DeadlineStep
from evenshare_core.domain.instants import to_us
from scheduling.models import Job


def deadline_steps_of(job: Job) -> tuple[DeadlineStep, ...]:
    """Return by when an end has which reward; none where it has no deadline that can be read."""
    if job.deadline_at is None:
        return ()
    try:
        declared = read_steps(job.deadline_steps) if job.deadline_steps else ()
        kind = DeadlineClass(job.job_class)
        return dated_steps(to_us(job.submitted_at), to_us(job.deadline_at), kind, declared)
    except ValueError:
        return ()
