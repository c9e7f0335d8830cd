"""Small pools for UniSched, with slots of five minutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evenshare_core.domain.deadlines import (
    Deadline,
    DeadlineAnswer,
    DeadlineClass,
    DeadlineStep,
)
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.unisched.policy import POLICY as UNISCHED
from evenshare_core.units import MINUTE_US, REWARD_MICRO
from tests.unit.core.snapshots import AT_US, snapshot

SLOT = 5 * MINUTE_US


def strict(number: int, after_us: int) -> Deadline:
    """Return a strict deadline of a job, `after_us` after the round."""
    steps = (DeadlineStep(AT_US + after_us, 100 * REWARD_MICRO),)
    return Deadline(number, DeadlineClass.STRICT, steps)


def estimates(jobs: Iterable[Job], spread_milli: int = 1000) -> tuple[JobEstimate, ...]:
    """Return exact estimates of the jobs' durations, without restart overhead."""
    return tuple(JobEstimate(one.id, EstimateSource.MEASURED, 0, 0, spread_milli) for one in jobs)


def asked(
    jobs: Sequence[Job], deadlines: Sequence[Deadline], leases: Sequence[Lease] = (), **rest: Any
) -> Snapshot:
    """Return a round of UniSched, with slots of five minutes."""
    spread = rest.pop("spread_milli", 1000)
    fields: dict[str, Any] = {
        "nodes": {1: 8, 2: 8, 3: 8},
        "policy": "unisched",
        "policy_version": UNISCHED.version,
        "schema": 8,
        "lease_us": SLOT,
        "round_us": MINUTE_US,
        "deadlines": tuple(deadlines),
        "estimates": estimates(jobs, spread),
    }
    return snapshot(jobs, leases, **{**fields, **rest})


def by_job(decision: Decision) -> dict[int, DeadlineAnswer]:
    return {row.job: row for row in decision.answers}
