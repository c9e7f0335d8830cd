"""Remaining time of a job, by the estimate that was declared at its submission.

This module is not a policy. All baselines that need remaining times use it, so that all make the
same errors. A job without an estimate is assumed to need the time that the operator sets. A job
that ran longer than its estimate is assumed to need a further small part of the estimate.
"""

from typing import Annotated

from msgspec import Meta

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import JobService
from evenshare_core.estimation.remaining import LEAST_PERCENT
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.units import SECOND_US

# Description of the option `unknown_s`: the assumed need of a job without an estimate.
UnknownSeconds = Annotated[
    int,
    Meta(
        ge=1,
        le=31_622_400,
        description="Assumed run time of a job without an estimate, on all its GPUs, in seconds.",
    ),
]
UNKNOWN_S = 3600


def whole_us(job: Job, unknown_us: int) -> int:
    """Return the assumed time that the job needs from start to end, in us; at least 1."""
    return max(1, unknown_us if job.estimate_us is None else job.estimate_us)


def remaining_us(job: Job, sums: JobService, at_us: int, whole: int) -> int:
    """Return how much of `whole` us of work is left at `at_us`, in us; at least 1.

    GPU-time received counts the same on every GPU type.
    """
    ran_us = job_received(sums, at_us) // job.gpus
    return max(whole - ran_us, whole * LEAST_PERCENT // 100, 1)


def left_us(job: Job, sums: JobService | None, at_us: int, unknown_s: int) -> int:
    """Return the time that a job needs from `at_us` on, in us.

    Without `sums`, return its total need.
    """
    whole = whole_us(job, unknown_s * SECOND_US)
    return whole if sums is None else remaining_us(job, sums, at_us, whole)
