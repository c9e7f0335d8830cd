"""AlloX: jobs are matched to positions on GPU types, tenants with the least progress first.

Source: AlloX (EuroSys 2020), 3 and 4, as Astraea-LTGF compares with it in 6.1.5.

LTGF's description is "min-cost bipartite matching to solve the placement problem with heterogeneous
resources, and select tenants with the lowest progress in each scheduling round".

| paper | here | unit |
|---|---|---|
| p_ij, processing time of job i on resource j | remaining x gang / (speed x GPUs of j) | ms |
| k-th to last position on j, cost k p_ij | a column for each type and position | |
| d_j, when j is free | GPU-time left of the jobs that run there / its GPUs | ms |
| progress of a user | GPU-time received / quota, over all types | |
| alpha, the share of users served first | `tenant_fraction` | |

A job in the k-th to last position delays k - 1 others and itself. A matching of least cost is thus
a schedule of least average completion (R || sum C), the shortest first on each type. Jobs of the
tenants with the least progress are matched, and each waits for its matched type. The remaining GPUs
go to the other tenants' jobs, by progress, then by processing time.

Nothing is preempted: leases are renewed until their job ends. A job that does not fit blocks no
other job.

Departures, each with its test in tests/papers/test_allox.py:

- A GPU type is one resource that processes GPU-time with all its GPUs. In AlloX, each job takes one
  machine. Gangs that run at the same time are placed where they fit.
- Only the first `matched_jobs` jobs by progress, then by submission, are matched. Later jobs are
  treated like other tenants' jobs.
- Speeds come from the job's profile. A job without a profile runs equally fast on all types.
- Remaining time comes from the job's estimate. A job without an estimate is assumed to need
  `unknown_s`.

All orders end in (submitted, id).
"""

from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import received
from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds, left_us
from evenshare_core.policies.shared.ordered import (
    OrderedPicks,
    QueuedJob,
    QueueRule,
    by_arrival,
    by_start,
    pool_capacity,
    queued_jobs,
)
from evenshare_core.units import ONE_MILLI
from evenshare_research.policies.assignment import assign

MATCHED, LEFT_OVER = "matched", "left_over"
# A year. Processing times are limited to it, so that the costs of MOST_JOBS positions and their
# sums stay exact.
LONGEST_MS = 3 * 10**10
MOST_JOBS = 200
# the cost of an impossible pair: higher than any matching without impossible pairs
NEVER = 2 * LONGEST_MS * MOST_JOBS**2


class AlloxOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tenant_fraction: Annotated[
        float,
        Meta(
            ge=0.01,
            le=1,
            description="Fraction of tenants with queued jobs that is served first, by least"
            " progress; 1: all, for the shortest average time only.",
        ),
    ] = 0.5
    matched_jobs: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_JOBS,
            description="Number of queued jobs that a round matches to GPU types.",
            extra_json_schema={UNIT: "jobs"},
        ),
    ] = 60
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Allox(Policy):
    name = "allox"
    version = "1"
    title = "Matched to GPU types"
    promise = (
        "Jobs of tenants furthest below their quota are matched to the GPU types on which they"
        " end earliest on average."
    )
    suits = "Mixed GPU types and short average times; jobs need estimates and speeds."
    order_text = (
        "Jobs of tenants furthest below their quota, each on its matched type, short jobs first;"
        " then the other jobs."
    )
    quota_text = (
        "A quota measures its tenant's progress: tenants with the least progress choose first."
        " Nothing is preempted for it, so a tenant may hold less than its quota while others'"
        " jobs run."
    )
    note_texts = MappingProxyType(
        {
            MATCHED: "Its tenant made the least progress, and the job was matched to this GPU"
            " type.",
            LEFT_OVER: "Jobs of tenants with less progress could not use these GPUs.",
        }
    )
    traits = Traits(needs_estimates=True, needs_profiles=True)
    options_type = AlloxOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(AlloxOptions, snapshot.options)
        matching = _Matching(snapshot, options)
        queue = queued_jobs(snapshot)
        ordered = matching.in_order([one for one in queue if one.lease is None])
        matched = {one.job.id for one in ordered.matched}
        rule = QueueRule(
            order=by_arrival,
            spread=options.spread,
            admits=lambda one: one.lease is not None or matching.can_run(one.job, one.gpu_type),
            note=lambda one: MATCHED if one.job.id in matched else LEFT_OVER,
        )
        picks = OrderedPicks(rule, pool_capacity(snapshot, rule), Admission.of(snapshot))
        picks.renew_all([one for one in queue if one.lease is not None])
        for one in (*ordered.matched, *ordered.others):
            picks.consider(one)
        return picks.decision(snapshot)

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        options = parse_options(AlloxOptions, snapshot.options)
        queue = queued_jobs(snapshot)
        renewed = sorted((one for one in queue if one.lease is not None), key=by_start)
        waiting = [one for one in queue if one.lease is None]
        ordered = _Matching(snapshot, options).in_order(waiting)
        return tuple(one.job.id for one in (*renewed, *ordered.matched, *ordered.others))


class AlloxOrder(NamedTuple):
    """Waiting jobs in the order of placement. Jobs in `matched` may use only their matched type."""

    matched: list[QueuedJob]
    others: list[QueuedJob]


class _Matching:
    """The processing times, the progress and the matching of a round."""

    def __init__(self, snapshot: Snapshot, options: AlloxOptions) -> None:
        self._snapshot, self._options = snapshot, options
        self._capacity = {
            name: gpus for name, gpus in sorted(capacity_by_type(snapshot.nodes).items()) if gpus
        }
        self._profiles = {row.id: dict(row.speedups) for row in snapshot.profiles}
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._sums = {row.job: row for row in snapshot.service.jobs}
        self._progress = _progress(snapshot)
        self._limits = {(row.tenant, row.gpu_type): row.most for row in snapshot.entitlements}

    def can_run(self, job: Job, gpu_type: str) -> bool:
        """Return whether a job's profile has a speed on a type."""
        return self._speed_milli(job, gpu_type) > 0

    def _speed_milli(self, job: Job, gpu_type: str) -> int:
        speeds = self._profiles.get(job.profile)
        return ONE_MILLI if speeds is None else speeds.get(gpu_type, 0)

    def _left_us(self, job: Job) -> int:
        at_us = self._snapshot.at_us
        return left_us(job, self._sums.get(job.id), at_us, self._options.unknown_s)

    def _processing_ms(self, job: Job, gpu_type: str) -> int:
        """Return p_ij, in ms rounded up, of a type on which the job can run."""
        speed = self._speed_milli(job, gpu_type) * self._capacity[gpu_type]
        return min(-(-self._left_us(job) * job.gpus // speed), LONGEST_MS)

    def _types(self, one: QueuedJob) -> list[str]:
        """Return the types that are large enough for the job's gang, within its tenant's limit."""
        return [
            name
            for name in self._capacity
            if name in one.gpu_types
            and one.job.gpus <= min(self._capacity[name], self._most(one.job.tenant, name))
            and self.can_run(one.job, name)
        ]

    def _most(self, tenant: int, gpu_type: str) -> int:
        """Return the most GPUs that a tenant may hold.

        Without a limit, these are all GPUs of the type.
        """
        most = self._limits.get((tenant, gpu_type))
        return self._capacity[gpu_type] if most is None else most

    def in_order(self, waiting: list[QueuedJob]) -> AlloxOrder:
        """Match the jobs of the tenants with the least progress. The other jobs follow in order."""
        able = {one.job.tenant for one in waiting if self._types(one)}
        ranks = self._ranks({one.job.tenant for one in waiting}, able)
        served = ceil(Fraction(self._options.tenant_fraction) * len(able))

        def by_rank(one: QueuedJob) -> tuple[int, ...]:
            return (ranks[one.job.tenant], *by_arrival(one))

        first = [one for one in waiting if ranks[one.job.tenant] < served and self._types(one)]
        first = sorted(first, key=by_rank)[: self._options.matched_jobs]
        chosen = {one.job.id for one in first}

        def by_time(one: QueuedJob) -> tuple[int, ...]:
            times = [self._processing_ms(one.job, name) for name in self._types(one)]
            return (ranks[one.job.tenant], min(times, default=LONGEST_MS), *by_arrival(one))

        others = [one for one in waiting if one.job.id not in chosen]
        return AlloxOrder(self._matched(first), sorted(others, key=by_time))

    def _ranks(self, tenants: set[int], able: set[int]) -> dict[int, int]:
        """Rank tenants by progress.

        Tenants not in `able`, which can run no job, come last; of the others, those without quota.
        """

        def key(tenant: int) -> tuple[bool, bool, Fraction, int]:
            progress = self._progress.get(tenant)
            return (tenant not in able, progress is None, progress or Fraction(0), tenant)

        return {tenant: rank for rank, tenant in enumerate(sorted(tenants, key=key))}

    def _matched(self, jobs: list[QueuedJob]) -> list[QueuedJob]:
        """Return the jobs with their matched types, in the order of their starts on the types."""
        if not jobs:
            return []
        types = list(self._capacity)
        free_ms = self._free_ms()
        count = len(jobs)
        costs = np.full((count, count * len(types)), NEVER, np.int64)
        positions = np.arange(1, count + 1, dtype=np.int64)
        for row, one in enumerate(jobs):
            for name in self._types(one):
                start = types.index(name) * count
                time_ms = self._processing_ms(one.job, name)
                costs[row, start : start + count] = positions * time_ms + free_ms[name]
        matched = []
        for one, column in zip(jobs, assign(costs), strict=True):
            name = types[column // count]
            matched.append(one._replace(gpu_types=(name,), gpu_type=name))
        # At the least cost, shorter jobs run first on each type. Among equal jobs, the older one is
        # first.
        return sorted(matched, key=self._by_time)

    def _by_time(self, one: QueuedJob) -> tuple[int, ...]:
        return (self._processing_ms(one.job, one.gpu_type), *by_arrival(one))

    def _free_ms(self) -> dict[str, int]:
        """Return d_j: when each type would finish its running jobs if they used all its GPUs."""
        work = dict.fromkeys(self._capacity, 0)
        for lease in self._snapshot.leases:
            job = self._jobs.get(lease.job)
            if job is not None and lease.gpu_type in work:
                speed = self._speed_milli(job, lease.gpu_type) or ONE_MILLI
                work[lease.gpu_type] += self._left_us(job) * lease.gpus // speed
        return {name: min(work[name] // gpus, LONGEST_MS) for name, gpus in self._capacity.items()}


def _progress(snapshot: Snapshot) -> dict[int, Fraction]:
    """Return GPU-time received divided by quota, for the tenants that have a quota."""
    quotas: dict[int, int] = {}
    for row in snapshot.entitlements:
        quotas[row.tenant] = quotas.get(row.tenant, 0) + row.gpus
    gpu_us: dict[int, int] = {}
    for claim in snapshot.service.claims:
        gpu_us[claim.tenant] = gpu_us.get(claim.tenant, 0) + received(claim, snapshot.at_us)
    return {
        tenant: Fraction(gpu_us.get(tenant, 0), quota) for tenant, quota in quotas.items() if quota
    }


POLICY = Allox()
