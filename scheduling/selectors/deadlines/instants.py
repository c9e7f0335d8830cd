"""The deadlines of a job, as times."""

from evenshare_core.deadlines.declared import dated_steps, read_steps
from evenshare_core.domain.deadlines import DeadlineClass, DeadlineStep
from evenshare_core.domain.instants import to_us
from evenshare_core.policies import registry
from evenshare_core.units import SECOND_US
from scheduling.models import Job, Pool


def deadline_steps_of(job: Job) -> tuple[DeadlineStep, ...]:
    """Return a job's deadline steps; empty if it has no deadline or its steps cannot be read."""
    if job.deadline_at is None:
        return ()
    try:
        declared = read_steps(job.deadline_steps) if job.deadline_steps else ()
        kind = DeadlineClass(job.job_class)
        return dated_steps(to_us(job.submitted_at), to_us(job.deadline_at), kind, declared)
    except ValueError:
        return ()


def deadline_horizon_s(pool: Pool) -> int | None:
    """Return how far ahead the pool's policy plans leases of jobs with deadlines, in pool seconds.

    Return None if it does not plan, or plans without a limit.
    """
    if pool.policy not in registry.POLICIES:
        return None
    options = registry.options(pool.policy, pool.options)
    horizon_us = registry.policy(pool.policy).deadline_horizon_us(options, pool.lease_s * SECOND_US)
    return None if horizon_us is None else horizon_us // SECOND_US
