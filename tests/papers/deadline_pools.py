"""Small pools with deadlines, for the policies that read deadlines."""

from __future__ import annotations

from typing import Any

from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import SCHEMA_VERSION, Snapshot
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import REWARD_MICRO, SECOND_US
from tests.unit.core.snapshots import job, snapshot

NOW_US = 1000 * SECOND_US


def steps(*ends_s: int) -> tuple[DeadlineStep, ...]:
    """Return deadlines in seconds from now, each worth 20 points less than the one before."""
    return tuple(
        DeadlineStep(NOW_US + end_s * SECOND_US, (100 - 20 * place) * REWARD_MICRO)
        for place, end_s in enumerate(ends_s)
    )


def deadline(number: int, *ends_s: int) -> Deadline:
    kind = DeadlineClass.STRICT if len(ends_s) == 1 else DeadlineClass.SOFT
    return Deadline(number, kind, steps(*ends_s))


def asked(policy: str, *rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
    """Return a round of 4 GPUs with jobs of (GPUs, estimate in s, deadlines in s from now)."""
    jobs = [
        job(number, gpus, estimate_us=None if known is None else known * SECOND_US)
        for number, (gpus, known, _) in enumerate(rows, start=1)
    ]
    deadlines = tuple(
        deadline(number, *ends) for number, (_, _, ends) in enumerate(rows, start=1) if ends
    )
    return snapshot(
        jobs, policy=policy, deadlines=deadlines,
        **{
            "nodes": {1: 4}, "at_us": NOW_US, "schema": SCHEMA_VERSION,
            "policy_version": POLICIES[policy].version, **fields,
        },
    )  # fmt: skip


def order(one: Snapshot) -> list[int]:
    return list(queue_order(one, decide_round(one).service) or ())


def started(decision: Decision) -> list[int]:
    return [grant.job for grant in decision.grants]


def estimates(*errors_milli: int) -> tuple[JobEstimate, ...]:
    """Return estimates of jobs 1, 2, ... with these errors."""
    return tuple(
        JobEstimate(number, EstimateSource.HISTORY, error)
        for number, error in enumerate(errors_milli, start=1)
    )
