"""Remaining time of a job, by the estimate that it was submitted with.

This is not a policy. All baselines that need remaining times use this module, so that all have the
same error. A job without an estimate is assumed to need the operator's value. A job that outlived
its estimate is assumed to need a small part of it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import JobService
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.units import SECOND_US

LEAST_PERCENT = 5  # of the estimate: the assumed need of a job that outlived it

# The option `unknown_s`: the assumed need of a job without an estimate.
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
    """Return the assumed total need of the job, from start to end, in us; at least 1."""
    return max(1, unknown_us if job.estimate_us is None else job.estimate_us)


def remaining_us(job: Job, sums: JobService, at_us: int, whole: int) -> int:
    """Return the rest of `whole` us of work at `at_us`, in us; at least 1.

    GPU-time received counts the same on every GPU type.
    """
    ran_us = job_received(sums, at_us) // job.gpus
    return max(whole - ran_us, whole * LEAST_PERCENT // 100, 1)


def left_us(job: Job, sums: JobService | None, at_us: int, unknown_s: int) -> int:
    """Return the assumed need of a job from `at_us` on, in us; all of it without `sums`."""
    whole = whole_us(job, unknown_s * SECOND_US)
    return whole if sums is None else remaining_us(job, sums, at_us, whole)
