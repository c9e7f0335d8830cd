"""DRF: dominant resource fairness over GPUs, CPUs and memory.

Source: Ghodsi et al., Dominant Resource Fairness (NSDI 2011), algorithm 1 and 4.3 (weights), over
(GPU, CPU, memory).

| paper | here | unit |
|---|---|---|
| R, total capacities | GPUs of all types, CPUs and memory of schedulable nodes | |
| D_i, demand of user i's next task | a job: its gang, and `Snapshot.job_resources` | |
| U_i, resources given to user i | those of its continuing leases, and of this round | |
| s_i, dominant share | the largest of its parts of R, over its weight | |
| w_i, weight | `weights`: its quotas over all types; or the same for all | |

Repeatedly, the tenant with the least dominant share gets its next job that fits. Within a tenant,
jobs are ordered by submission. A job whose lease ends queues with the waiting jobs. A job that does
not fit blocks no other job.

A gang on one node needs its CPUs and memory on that node. On several nodes, it needs CPUs and
memory on each in proportion to its GPUs there. A resource that a node or job does not report counts
as unlimited. For example, a node that reports only CPUs has enough memory. If nothing is reported,
the policy is max-min fairness of GPUs.

Departures, each with its test in tests/papers/test_drf.py:

- Tasks are gangs of leases, so shares are only as even as jobs fit, and change when leases end.
- If shares are equal, as when all leases end at once, the tenant that received the least GPU-time
  for its weight is first. Without this rule, a pool that one gang fills would always go to the
  lower id.
- A tenant without quota has no weight: it comes after all others.

All orders end in (submitted, id).
"""

import math
from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import lcm
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement, Resources
from evenshare_core.domain.decision import Decision, Skip
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import received
from evenshare_core.placement.consolidated import FreeCapacity, FreeGpus
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise, QuotaPromiseKind
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.ordered import (
    OrderedPicks,
    QueuedJob,
    QueueRule,
    by_arrival,
    pool_capacity,
    queued_jobs,
)

GPUS, CPUS, MEMORY = "dominant_gpus", "dominant_cpus", "dominant_memory"
NAMES = (GPUS, CPUS, MEMORY)
NONE = Resources(0)
EQUAL_TEXT = (
    "All tenants have the same weight. A tenant borrows GPUs above its quota, at the posted price."
)


class DrfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    weights: Annotated[
        Literal["quota", "equal"],
        Meta(
            description="Divisor of a tenant's dominant share: its quotas of all GPU types"
            " (quota), or the same for all tenants (equal)."
        ),
    ] = "quota"
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Drf(Policy):
    name = "drf"
    version = "2"
    title = "Dominant resource fairness"
    promise = "The tenant with the smallest dominant share is served next."
    suits = "Jobs that use up CPUs or memory before GPUs."
    order_text = "The tenant with the smallest dominant share goes first, with its earliest job."
    quota_text = (
        "A quota is a weight: a tenant's dominant share is its largest part of GPUs, CPUs or"
        " memory, divided by its quota. As leases end, the tenant with the smallest one is"
        " served next."
    )
    quota_kind = QuotaPromiseKind.WEIGHT
    note_texts = MappingProxyType(
        {
            GPUS: "Its tenant had the least dominant share of those whose jobs fit: of GPUs.",
            CPUS: "Its tenant had the least dominant share of those whose jobs fit: of CPUs.",
            MEMORY: "Its tenant had the least dominant share of those whose jobs fit: of memory.",
        }
    )
    traits = Traits(preempts=True)
    options_type = DrfOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(DrfOptions, snapshot.options)
        shares = DominantShares(snapshot, by_quota=options.weights == "quota")
        rule = QueueRule(
            order=by_arrival,
            preempts=True,
            spread=options.spread,
            note=lambda one: shares.dominant(one.job),
        )
        picks = DrfPicks(snapshot, rule)
        for one in in_turn(queued_jobs(snapshot), shares):
            if picks.consider(one):
                shares.add(one.job)
        return picks.decision(snapshot)

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        options = parse_options(DrfOptions, snapshot.options)
        shares = DominantShares(snapshot, by_quota=options.weights == "quota")
        order = []
        for one in in_turn(queued_jobs(snapshot), shares):
            shares.add(one.job)
            order.append(one.job.id)
        return tuple(order)

    def quota_promise(self, options: Options, lengths: PoolLengths) -> QuotaPromise:
        """Return what a quota promises: a weight, or nothing if all tenants weigh the same."""
        if isinstance(options, DrfOptions) and options.weights == "equal":
            return QuotaPromise(QuotaPromiseKind.NOT_GUARANTEED, EQUAL_TEXT)
        return super().quota_promise(options, lengths)


class DominantShares:
    """The tenants' use of each resource (GPUs, CPUs, MB) relative to the pool's total."""

    def __init__(self, snapshot: Snapshot, *, by_quota: bool) -> None:
        rows = {row.id: row for row in snapshot.node_resources}
        nodes = [node for node in snapshot.nodes if node.gpus]
        known = [rows[node.id] for node in nodes if node.id in rows]
        self._total = (
            sum(node.gpus for node in nodes),
            sum(row.cpus for row in known),
            sum(row.memory_mb for row in known),
        )
        # Shares of resource totals are integers, in units of 1 / (least common multiple of the
        # totals).
        whole = lcm(*[total for total in self._total if total])
        self._parts_each = tuple(whole // total if total else 0 for total in self._total)
        self._needs = {row.id: row for row in snapshot.job_resources}
        self._used: dict[int, list[int]] = {}
        self._by_quota = by_quota
        self._weights: dict[int, int] = {}
        for row in snapshot.entitlements:
            self._weights[row.tenant] = self._weights.get(row.tenant, 0) + row.gpus
        # Shares divided by weights are integers too, scaled by the weights' least common multiple.
        self._all_weights = lcm(*[weight for weight in self._weights.values() if weight])
        self._received: dict[int, int] = {}
        for claim in snapshot.service.claims:
            before = self._received.get(claim.tenant, 0)
            self._received[claim.tenant] = before + received(claim, snapshot.at_us)
        jobs = {job.id: job for job in snapshot.jobs}
        for lease in snapshot.leases:
            if not lease.ends_by(snapshot.at_us) and lease.job in jobs:
                self.add(jobs[lease.job])

    def add(self, job: Job) -> None:
        """Add a job's resources to those that its tenant uses."""
        used = self._used.setdefault(job.tenant, [0, 0, 0])
        for index, count in enumerate(self._demand(job)):
            used[index] += count

    def _demand(self, job: Job) -> tuple[int, int, int]:
        needs = self._needs.get(job.id, NONE)
        return (job.gpus, needs.cpus, needs.memory_mb)

    def _parts(self, counts: Iterable[int]) -> list[int]:
        return [count * each for count, each in zip(counts, self._parts_each, strict=True)]

    def key(self, tenant: int) -> tuple[bool, int, int, int]:
        """Return the tenant's sort key: lowest share first, tenants without weight last."""
        weight = self._weights.get(tenant, 0) if self._by_quota else 1
        over_weight = self._all_weights // (weight or 1)
        share = max(self._parts(self._used.get(tenant, (0, 0, 0)))) * over_weight
        past = self._received.get(tenant, 0) * over_weight
        return (not weight, share, past, tenant)

    def dominant(self, job: Job) -> str:
        """Return the note of the resource that would be dominant for the tenant with the job."""
        used = self._used.get(job.tenant, (0, 0, 0))
        counts = [have + more for have, more in zip(used, self._demand(job), strict=True)]
        parts = self._parts(counts)
        return NAMES[parts.index(max(parts))]


def in_turn(queue: Collection[QueuedJob], shares: DominantShares) -> Iterator[QueuedJob]:
    """Yield the next job of the tenant with the least share. Callers update `shares`."""
    by_tenant: dict[int, list[QueuedJob]] = {}
    for one in sorted(queue, key=by_arrival, reverse=True):
        by_tenant.setdefault(one.job.tenant, []).append(one)
    heap = [shares.key(tenant) for tenant in by_tenant]
    heapify(heap)
    while heap:
        tenant = heappop(heap)[-1]
        yield by_tenant[tenant].pop()
        if by_tenant[tenant]:
            heappush(heap, shares.key(tenant))


class NodeResources:
    """Unused CPUs and memory of each node. A node that reports nothing has enough."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._needs = {row.id: row for row in snapshot.job_resources}
        # CPUs and MB of each node; unreported resources are unlimited.
        self._left = {
            row.id: (row.cpus or math.inf, row.memory_mb or math.inf)
            for row in snapshot.node_resources
        }
        gpus = {job.id: job.gpus for job in snapshot.jobs}
        for lease in snapshot.leases:
            if not lease.ends_by(snapshot.at_us) and lease.job in gpus:
                self.take(lease.job, gpus[lease.job], lease.placement)

    def needs(self, job_id: int) -> Resources:
        """Return the CPUs and memory that a job needs."""
        return self._needs.get(job_id, NONE)

    def _part(self, job_id: int, gang: int, gpus: int) -> tuple[int, int]:
        """Return the CPUs and MB that `gpus` GPUs of a gang need, rounded up."""
        needs = self.needs(job_id)
        return (-(-needs.cpus * gpus // gang), -(-needs.memory_mb * gpus // gang))

    def take(self, job_id: int, gang: int, placement: Placement) -> None:
        """Subtract a job's CPUs and memory from its nodes."""
        for node, gpus in placement:
            left = self._left.get(node)
            if left is not None:
                cpus, memory_mb = self._part(job_id, gang, gpus)
                self._left[node] = (left[0] - cpus, left[1] - memory_mb)

    def fit(self, job_id: int, gang: int, node: int, gpus: int) -> bool:
        """Return whether a node has enough CPUs and memory for `gpus` GPUs of a gang."""
        left = self._left.get(node)
        cpus, memory_mb = self._part(job_id, gang, gpus)
        if left is None or not (cpus or memory_mb):
            return True
        return (not cpus or cpus <= left[0]) and (not memory_mb or memory_mb <= left[1])

    def most(self, job_id: int, gang: int, node: int, gpus: int) -> int:
        """Return how many GPUs of a gang, up to `gpus`, have enough CPUs and memory on a node."""
        return next(
            (count for count in range(gpus, 0, -1) if self.fit(job_id, gang, node, count)), 0
        )


class DrfPicks(OrderedPicks):
    """The picks of the round so far, on nodes with enough CPUs and memory."""

    def __init__(self, snapshot: Snapshot, rule: QueueRule) -> None:
        super().__init__(rule, pool_capacity(snapshot, rule), Admission.of(snapshot))
        self._spread = rule.spread
        self._resources = NodeResources(snapshot)
        # jobs for which enough GPUs were free, but not on nodes with enough CPUs or memory
        self._lacking: set[int] = set()
        self._short: dict[tuple[int, str], list[Job]] = {}

    def may_renew(self, one: QueuedJob, lease: Lease) -> bool:
        """Return whether the CPUs and memory of a lease that ended are still available."""
        job = one.job
        may = all(
            self._resources.fit(job.id, job.gpus, node, gpus) for node, gpus in lease.placement
        )
        free = self.free_by_type[lease.gpu_type].available
        if may and free.has(lease.placement):
            self._resources.take(job.id, job.gpus, lease.placement)
        return may

    def place(self, one: QueuedJob, free_capacity: FreeCapacity) -> Placement | None:
        """Place a gang by the common rules, but only on nodes with enough CPUs and memory."""
        job, needs = one.job, self._resources.needs(one.job.id)
        if not (needs.cpus or needs.memory_mb):
            return super().place(one, free_capacity)
        for free in (free_capacity.unheld, free_capacity.available):
            placement = self._find(job, free)
            if placement is not None:
                free_capacity.put(placement)
                self._resources.take(job.id, job.gpus, placement)
                return placement
        if free_capacity.fits(job.gpus):
            self._lacking.add(job.id)
        return None

    def _find(self, job: Job, free: FreeGpus) -> Placement | None:
        """Return the best fit on one node. Larger gangs use the nodes with the most GPUs first."""
        gang, fit = job.gpus, self._resources.fit
        if gang <= free.size:
            nodes = [
                (gpus, node)
                for node, gpus in free.free.items()
                if gpus >= gang and fit(job.id, gang, node, gang)
            ]
            if nodes or not self._spread:
                return ((min(nodes)[1], gang),) if nodes else None
        places, left = [], gang
        for node, gpus in sorted(free.free.items(), key=lambda row: (-row[1], row[0])):
            count = self._resources.most(job.id, gang, node, min(gpus, left))
            if count:
                places.append((node, count))
                left -= count
        return None if left else tuple(sorted(places))

    def wait(self, candidate: QueuedJob, refusals: Collection[str] = ()) -> None:
        """Record that a job waits. Jobs that lack only CPUs or memory are recorded separately."""
        if candidate.job.id not in self._lacking:
            super().wait(candidate, refusals)
            return
        key = (candidate.job.tenant, candidate.gpu_type)
        self._short.setdefault(key, []).append(candidate.job)

    def decision(self, snapshot: Snapshot) -> Decision:
        """Return the round's picks, and the reasons why jobs wait."""
        decision = super().decision(snapshot)
        rows = tuple(self._row(*key, jobs) for key, jobs in sorted(self._short.items()))
        return replace(decision, skips=(*decision.skips, *rows))

    def _row(self, tenant: int, gpu_type: str, jobs: list[Job]) -> Skip:
        """Return a skip with the numbers of the job that needs the least CPUs."""
        jobs.sort(key=arrival_order)
        needs = [self._resources.needs(job.id) for job in jobs]
        least = min(needs, key=lambda row: (row.cpus, row.memory_mb, row.id))
        numbers = {"gpu_type": gpu_type, "cpus": least.cpus, "memory_mb": least.memory_mb}
        gpus = sum(job.gpus for job in jobs)
        return Skip(Reason.CPUS_OR_MEMORY, tenant, tuple(job.id for job in jobs), gpus, numbers)


POLICY = Drf()
