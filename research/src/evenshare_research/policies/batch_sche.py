"""BatchSche: Astraea-online's scheduler in a private partition per tenant, without sharing.

Source: Astraea-online (TC 2022), 5.1: "We perform this algorithm for each user to schedule its jobs
in its private cluster". A_maxIrev is algorithm 3, in the order (arrival, id).

| paper | here | unit |
|---|---|---|
| q_w^u, workers of user u | the tenant's quota of a GPU type | GPUs |
| D_w, workers of a job, from start to end | its gang; nothing is preempted | GPUs |
| d, duration | the estimate; for a running job, the rest of it | us |
| schedule of largest f - cost | the earliest for which the partition has GPUs to its end | us |
| a round of jobs | all waiting jobs, planned again in each round | |

Utility f is lower for a later completion, and GPUs within a quota are free of charge. So the
schedule with the largest f - cost is the earliest. A job starts if its planned schedule starts now.
By the estimates, a later job starts first only if it delays no earlier job (conservative backfill).

Departures, each with its test in tests/papers/test_batch_sche.py:

- There are no prices inside a partition, so no job is rejected (7), and no parameter servers.
- Plans are made for the first `plan_jobs` of a tenant's waiting jobs. Later jobs wait.
- A job without an estimate is assumed to need `unknown_s`. Wrong estimates delay planned jobs, but
  end no lease.
- The partition is a number of GPUs, not a set of nodes. So a gang may wait until it fits on nodes.
- A gang larger than its tenant's whole quota would wait forever. With `oversized`, it may run when
  its tenant holds nothing else. Until then, or without `oversized`, it waits and delays no other
  job.

A lease above its tenant's quota, from another policy or after a cut of the quota, is not renewed.
The exception is a lease for which the tenant may borrow (`oversized`).

All orders end in (submitted, id).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds, left_us
from evenshare_core.policies.shared.ordered import (
    QueueRule,
    by_arrival,
    decide_in_order,
    order_of,
)

PLANNED = "planned"


class BatchScheOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    plan_jobs: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Number of a tenant's queued jobs with a planned start; other jobs wait"
            " behind them.",
            extra_json_schema={UNIT: "jobs"},
        ),
    ] = 100
    oversized: Annotated[
        bool,
        Meta(
            description="A job larger than its tenant's whole quota may run while the tenant holds"
            " nothing else; off: it never runs."
        ),
    ] = True
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class BatchSche(Policy):
    name = "batch_sche"
    version = "1"
    title = "Private partitions"
    promise = "Each tenant has a private partition in which its jobs start as early as possible."
    suits = "Strict partitions in which small jobs fill gaps before large gangs."
    order_text = (
        "In the order of submission, within the quota of its tenant; a later job goes ahead if"
        " by the estimates it delays no other job."
    )
    quota_text = (
        "A quota is a private partition: no other tenant uses these GPUs, and a tenant never"
        " holds more. A gang may still have to wait until nodes fit."
    )
    quota_kind = QuotaPromiseKind.RESERVED
    note_texts = MappingProxyType(
        {PLANNED: "Its tenant's partition has room for it now, and until it ends by the estimates."}
    )
    traits = Traits(needs_estimates=True)
    options_type = BatchScheOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(BatchScheOptions, snapshot.options)
        private = _without_sharing(snapshot, oversized=options.oversized)
        return decide_in_order(private, _rule(options, PartitionPlans(private, options)))

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return jobs in the order of planning, without jobs that can never run."""
        options = parse_options(BatchScheOptions, snapshot.options)
        private = _without_sharing(snapshot, oversized=options.oversized)
        plans = PartitionPlans(private, options)
        return tuple(job for job in order_of(private, _rule(options, plans)) if plans.has_room(job))


def _without_sharing(snapshot: Snapshot, *, oversized: bool) -> Snapshot:
    """Return the snapshot without borrowing, with a quota (0 if unset) for every tenant with jobs.

    `oversized`: a tenant may borrow what its largest gang needs above the quota, within its limit.
    """
    capacity = capacity_by_type(snapshot.nodes)
    rows = {(row.tenant, row.gpu_type): row for row in snapshot.entitlements}
    above: dict[tuple[int, str], int] = {}
    for job in snapshot.jobs:
        for name in accepted_types(job, capacity):
            key = (job.tenant, name)
            rows.setdefault(key, Entitlement(*key, 0))
            above[key] = max(above.get(key, 0), job.gpus - rows[key].gpus)
    quotas = []
    for key, row in sorted(rows.items()):
        most = above.get(key, 0) if oversized else 0
        limit = most if row.may_borrow is None else min(most, row.may_borrow)
        quotas.append(replace(row, borrow_limit=limit))
    return replace(snapshot, entitlements=tuple(quotas))


def _rule(options: BatchScheOptions, plans: PartitionPlans) -> QueueRule:
    return QueueRule(
        order=by_arrival,
        spread=options.spread,
        admits=lambda one: one.lease is not None or plans.starts(one.job.id) == one.gpu_type,
        note=lambda _: PLANNED,
    )


class PartitionPlan:
    """The free GPUs of a partition from now on, as steps (start of the step, free GPUs)."""

    def __init__(self, gpus: int, at_us: int, held: Iterable[tuple[int, int]]) -> None:
        """`held`: pairs (end of a lease, its GPUs)."""
        self.gpus = gpus
        changes: dict[int, int] = {at_us: 0}
        free = gpus
        for until_us, count in held:
            free -= count
            changes[until_us] = changes.get(until_us, 0) + count
        self._steps: list[list[int]] = []
        for from_us in sorted(changes):
            free += changes[from_us]
            self._steps.append([from_us, free])

    def earliest(self, gpus: int, length_us: int) -> int | None:
        """Return the first time from which `gpus` are free for `length_us`, or None if never."""
        start_us: int | None = None
        for from_us, free in self._steps:
            if start_us is not None and from_us >= start_us + length_us:
                return start_us
            if free < gpus:
                start_us = None
            elif start_us is None:
                start_us = from_us
        return start_us

    def take(self, gpus: int, start_us: int, length_us: int) -> None:
        """Plan GPUs from `start_us`, which is a result of `earliest`."""
        end_us = start_us + length_us
        self._cut(end_us)
        for step in self._steps:
            if start_us <= step[0] < end_us:
                step[1] -= gpus

    def _cut(self, at_us: int) -> None:
        """Split the step that contains `at_us`."""
        for index in range(len(self._steps) - 1, -1, -1):
            from_us, free = self._steps[index]
            if from_us == at_us:
                return
            if from_us < at_us:
                self._steps.insert(index + 1, [at_us, free])
                return


class PartitionPlans:
    """The plans of all tenants' partitions, and the waiting jobs that start now."""

    def __init__(self, snapshot: Snapshot, options: BatchScheOptions) -> None:
        self._snapshot, self._unknown_s = snapshot, options.unknown_s
        self._oversized = options.oversized
        self._alone: dict[int, Admission] = {}
        self._sums = {row.job: row for row in snapshot.service.jobs}
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._plans = self._partitions()
        self._starts: dict[int, str] = {}
        self._types = capacity_by_type(snapshot.nodes)
        held = {lease.job for lease in snapshot.leases}
        planned: dict[int, int] = {}
        for job in sorted(snapshot.jobs, key=arrival_order):
            if job.id in held or not self.has_room(job.id):
                continue
            planned[job.tenant] = planned.get(job.tenant, 0) + 1
            if planned[job.tenant] <= options.plan_jobs:
                self._plan(job)

    def starts(self, job_id: int) -> str | None:
        """Return the GPU type on which the plan starts a job now, or None if it waits."""
        return self._starts.get(job_id)

    def has_room(self, job_id: int) -> bool:
        """Return whether a job may ever run: within its tenant's quota of a type, or oversized."""
        return bool(self._types_of(self._jobs[job_id]))

    def _types_of(self, job: Job) -> list[str]:
        """Return the types whose quota has room for the gang, or else those for an oversized run.

        The claimed type comes first.
        """
        sums = self._sums.get(job.id)
        claimed = sums.gpu_type if sums is not None else ""
        types = [
            name
            for name in accepted_types(job, self._types, first=claimed)
            if job.gpus <= self._types[name]
        ]
        within = [name for name in types if job.gpus <= self._quotas[job.tenant, name]]
        return within or (types if self._oversized else [])

    def _partitions(self) -> dict[tuple[int, str], PartitionPlan]:
        """Return the plan of each partition.

        A tenant without quota has a plan of 1 GPU, so it runs one job at a time.
        """
        snapshot = self._snapshot
        held: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for lease in snapshot.leases:
            job = self._jobs.get(lease.job)
            left_us = snapshot.lease_us if job is None else self._left_us(job)
            until_us = snapshot.at_us + left_us
            held.setdefault((lease.tenant, lease.gpu_type), []).append((until_us, lease.gpus))
        return {
            key: PartitionPlan(max(1, gpus), snapshot.at_us, held.get(key, ()))
            for key, gpus in self._quotas.items()
        }

    def _left_us(self, job: Job) -> int:
        return left_us(job, self._sums.get(job.id), self._snapshot.at_us, self._unknown_s)

    def _plan(self, job: Job) -> None:
        """Plan a job on the type with the earliest start; on a tie, on the claimed type."""
        length_us = self._left_us(job)
        best: tuple[int, str] | None = None
        for name in self._types_of(job):
            if self._is_refused(job, name):
                continue
            start_us = self._plans[job.tenant, name].earliest(self._part(job, name), length_us)
            if start_us is not None and (best is None or start_us < best[0]):
                best = (start_us, name)
        if best is None:
            return
        start_us, name = best
        self._plans[job.tenant, name].take(self._part(job, name), start_us, length_us)
        if start_us == self._snapshot.at_us:
            self._starts[job.id] = name

    def _is_refused(self, job: Job, gpu_type: str) -> bool:
        """Return whether the job must borrow, and may not even if its tenant held nothing else."""
        tenant = job.tenant
        if job.gpus <= self._quotas[tenant, gpu_type]:
            return False
        if tenant not in self._alone:
            others = tuple(row for row in self._snapshot.leases if row.tenant != tenant)
            self._alone[tenant] = Admission.of(replace(self._snapshot, leases=others))
        return self._alone[tenant].check(job, gpu_type) is not None

    def _part(self, job: Job, gpu_type: str) -> int:
        """Return the GPUs of the partition that a job takes: at most all of them."""
        return min(job.gpus, self._plans[job.tenant, gpu_type].gpus)


POLICY = BatchSche()
