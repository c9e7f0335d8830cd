"""How long a job still takes, by the estimate that it was submitted with.

Not a policy. Baselines that need remaining times read them here, so that all err in the same way:
a job without an estimate is taken to need what the operator says, and one that has outlived its
estimate a small part of it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import JobService
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.units import SECOND_US

LEAST_PERCENT = 5  # of the estimate: what a job that outlived it is taken to need

# Of the option `unknown_s`: what a job without an estimate is taken to need.
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
    """Return what the job is taken to need from its start to its end, in us; at least 1."""
    return max(1, unknown_us if job.estimate_us is None else job.estimate_us)


def remaining_us(job: Job, sums: JobService, at_us: int, whole: int) -> int:
    """Return what is left of `whole` us of work at `at_us`, in us; at least 1.

    What it received counts the same on every GPU type.
    """
    ran_us = job_received(sums, at_us) // job.gpus
    return max(whole - ran_us, whole * LEAST_PERCENT // 100, 1)


def left_us(job: Job, sums: JobService | None, at_us: int, unknown_s: int) -> int:
    """Return what a job is taken to need from `at_us` on, in us; all of it without `sums`."""
    whole = whole_us(job, unknown_s * SECOND_US)
    return whole if sums is None else remaining_us(job, sums, at_us, whole)
