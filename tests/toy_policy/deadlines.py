"""First come, first served, with an answer to each job that has a deadline.

The policy serves to test how the engine, the pages and the API handle answers. A plan starts at the
job's first lease, or at the round if it has no lease, and takes as many leases as the job's
estimate.

- refused: the plan ends after the deadline (`length`), the pool has too few GPUs (`size`), or the
  tenant has too little quota (`quota`);
- missed: the deadline is over.

If a plan has changed since the last answer, the new answer names a cause.

Source: none. The order is that of `fifo`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.deadlines import (
    DeadlineAnswer,
    DeadlineLimit,
    DeadlineState,
    PlannedLease,
)
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.ids import ById, IdKind
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.options import Options
from evenshare_core.policies.policy import Policy, Private, Traits
from evenshare_core.units import REWARD_MICRO

_INNER = registry.policy("fifo")
REWARD = 100 * REWARD_MICRO
CHANCE_MILLI = 875


def answer_of(snapshot: Snapshot, job: Job) -> DeadlineAnswer:
    """Return the answer to one job, without regard to earlier answers."""
    assert job.deadline_us is not None
    state = DeadlineState.REFUSED
    ((gpu_type, capacity), *_) = sorted(capacity_by_type(snapshot.nodes).items())
    quotas = {row.tenant: row.gpus for row in snapshot.entitlements}
    begun = [lease.started_us for lease in snapshot.leases if lease.job == job.id]
    leases = max(1, -(-(job.estimate_us or 0) // snapshot.lease_us))
    start_us = min([*begun, snapshot.at_us])
    planned = PlannedLease(start_us, start_us + leases * snapshot.lease_us)
    if job.deadline_us <= snapshot.at_us:
        return DeadlineAnswer(job.id, job.tenant, DeadlineState.MISSED)
    limit = None
    if job.gpus > capacity:
        limit = DeadlineLimit.SIZE
    elif job.gpus > quotas.get(job.tenant, 0):
        limit = DeadlineLimit.QUOTA
    elif planned.end_us > job.deadline_us:
        limit = DeadlineLimit.LENGTH
    if limit is not None:
        earliest_us = planned.end_us if limit is DeadlineLimit.LENGTH else None
        return DeadlineAnswer(
            job.id, job.tenant, state, gpu_type=gpu_type, gpus=job.gpus, limit=limit,
            blocked=(planned,), earliest_us=earliest_us,
        )  # fmt: skip
    return DeadlineAnswer(
        job.id, job.tenant, DeadlineState.PLANNED, job.deadline_us, REWARD, gpu_type, job.gpus,
        leases=(planned,), chance_milli=CHANCE_MILLI if job.estimate_us else None,
    )  # fmt: skip


class Answering(Policy):
    """The policy of this module."""

    name = "answering"
    version = "1"
    title = "Answers"
    promise = "Each job with a deadline has an answer."
    suits = "Tests."
    order_text = "Whoever was submitted first."
    traits = Traits(answers_deadlines=True)
    memory_ids = ById(IdKind.JOB)
    options_type = _INNER.options_type

    def reads(self, options: Options) -> frozenset[Private]:
        """Return the private fields that the base class and `answer_of` read."""
        return super().reads(options) | {Private.DEADLINE, Private.ESTIMATE}

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide one round; the memory has the last answer to each job."""
        decision = _INNER.decide(replace(snapshot, memory={}))
        before: dict[str, Any] = snapshot.memory
        memory: dict[str, Any] = {}
        answers = []
        for job in snapshot.jobs:
            if job.deadline_us is None:
                continue
            answer = answer_of(snapshot, job)
            said = before.get(str(job.id))
            ends_us = answer.leases[-1].end_us if answer.leases else 0
            memory[str(job.id)] = [answer.state.value, ends_us]
            if said != memory[str(job.id)]:
                moved = said is not None and said[0] == answer.state
                answers.append(replace(answer, cause="it waits for GPUs" if moved else ""))
        return replace(decision, answers=tuple(answers), memory=memory)


POLICY = Answering()
