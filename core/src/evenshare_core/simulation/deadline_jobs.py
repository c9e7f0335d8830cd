"""Deadlines and estimates of jobs in a simulated pool's snapshot.

Rewards are in proportion to a trace's values; the first value is 100 points. Source: UniSched, II-B
and III-C2.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from evenshare_core.deadlines.declared import steps_of_values
from evenshare_core.domain.deadlines import (
    Deadline,
    DeadlineClass,
    DeadlineStep,
)
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import ONE_MILLI

RowT = TypeVar("RowT")


def deadline_of(job: SimJob) -> Deadline | None:
    """Return the deadlines of a job; None if it is a best-effort job.

    A live pool reads a trace by the same rule, `steps_of_values`.
    """
    if job.deadline_us is None:
        return None
    values = job.values or ((job.deadline_us, 1),)
    declared = steps_of_values((by_us - job.submitted_us, value) for by_us, value in values)
    steps = tuple(
        DeadlineStep(job.submitted_us + after_us, step.reward_micro) for after_us, step in declared
    )
    kind = DeadlineClass.SOFT if len(steps) > 1 else DeadlineClass.STRICT
    return Deadline(job.id, kind, steps)


def later(deadline: Deadline | None, by_us: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the values of a job whose deadlines are moved `by_us` later.

    They are (time, millionths of a point), as `SimJob.values`; empty without deadlines.
    """
    if deadline is None:
        return ()
    return tuple((step.by_us + by_us, step.reward_micro) for step in deadline.steps)


def deadlines_of(jobs: Iterable[SimJob]) -> dict[int, Deadline]:
    """Return the deadlines by job; jobs without deadline are left out."""
    rows = {job.id: deadline_of(job) for job in jobs}
    return {job: row for job, row in rows.items() if row is not None}


def estimates_of(
    jobs: Iterable[SimJob], cluster: Cluster, *, cold_us: int, checkpoint_us: int
) -> dict[int, JobEstimate]:
    """Return the uncertainty, overhead and spread speed of jobs with an estimate.

    Jobs whose values are all defaults are left out. `cold_us` and `checkpoint_us` are lost at a
    resume and a suspension, unless the job states its own overheads.
    """
    largest = max(cluster.node_sizes.values(), default=0)
    rows: dict[int, JobEstimate] = {}
    for job in jobs:
        if job.estimate_us is None:
            continue
        overhead_us = job.cold_us_or(cold_us) + job.checkpoint_us_or(checkpoint_us)
        spread_milli = min((share for _, share in job.spread), default=cluster.spread_milli)
        if job.gpus > largest:
            spread_milli = ONE_MILLI
        if job.estimate_error_milli or overhead_us or spread_milli != ONE_MILLI:
            rows[job.id] = JobEstimate(
                job.id, EstimateSource.DECLARED, job.estimate_error_milli, overhead_us, spread_milli
            )
    return rows


def rows_of(rows: Mapping[int, RowT], jobs: Collection[int]) -> tuple[RowT, ...]:
    return tuple(rows[job] for job in jobs if job in rows) if rows else ()
