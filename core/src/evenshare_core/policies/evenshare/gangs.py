"""Room for a gang that is larger than a node, by two rules of the first edition."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.fairness.gpu_time import ClaimSums, job_received
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.evenshare.progress import NOTE_OF, RoundProgress
from evenshare_core.policies.evenshare.queues import (
    LONG_GPU_US,
    ClaimKey,
    EvenCandidate,
    Kinds,
    Rank,
)
from evenshare_core.policies.shared.preemption import ClearedNode, LeaseIndex
from evenshare_core.policies.shared.several_nodes import NodePart, Ranked, clear_nodes


class GangRoom:
    """The part of a round that clears several nodes for gangs."""

    def __init__(
        self,
        progress: RoundProgress,
        owed: Callable[[Job, str], dict[str, int] | None],
        index: Callable[[str], LeaseIndex],
        clear: Callable[[EvenCandidate, str, ClearedNode, PreemptionRule, dict[str, int]], None],
    ) -> None:
        """Use the functions of `RoomMaker` that rules for one node use too."""
        self._progress, self._options = progress, progress.options
        self._owed, self._index, self._clear = owed, index, clear
        self._ranks: dict[int, Rank] = {}
        self._known: dict[tuple[str, bool], dict[int, list[Ranked]]] = {}

    def make(self, one: EvenCandidate, gpu_type: str, free: FreeCapacity) -> bool:
        """Clear nodes for the gang and give them to it; return whether that was possible."""
        return self._guarantee(one, gpu_type, free) or self._overtake(one, gpu_type, free)

    def _guarantee(self, one: EvenCandidate, gpu_type: str, free: FreeCapacity) -> bool:
        numbers = self._owed(one.job, gpu_type)
        if numbers is None:
            return False
        parts = self._search(one, gpu_type, free, None)
        return parts is not None and self._take(
            one, gpu_type, parts, PreemptionRule.GUARANTEE, numbers
        )

    def _overtake(self, one: EvenCandidate, gpu_type: str, free: FreeCapacity) -> bool:
        if not self._options.may_overtake:
            return False
        numbers = {"threshold_gpu_us": LONG_GPU_US}
        mine = self._progress.pool.order.now(one._replace(lease=None))
        parts = self._search(one, gpu_type, free, mine)
        return parts is not None and self._take(one, gpu_type, parts, PreemptionRule.GANG, numbers)

    def _search(
        self, one: EvenCandidate, gpu_type: str, free: FreeCapacity, before: Rank | None
    ) -> list[NodePart] | None:
        """Search for nodes to clear by the guarantee or, with the rank `before`, by overtaking."""
        by_node = self._index(gpu_type).by_node
        spare: dict[int, int | None] = {}
        leases: dict[int, list[Ranked]] = {}
        for tenant, rows in self._endable(gpu_type, only_long=before is not None).items():
            limit = None
            if before is None or tenant != one.job.tenant:
                limit = self._progress.standings[tenant, gpu_type].spare
                if limit <= 0:
                    continue
            spare[tenant] = limit
            for row in rows:
                node, gpus = row[1].placement[0]
                if limit is not None and limit < gpus:
                    continue
                if node in by_node and (before is None or before < self._rank(row[1])):
                    leases.setdefault(node, []).append(row)
        parts = clear_nodes(one.job.gpus, free.available.free, leases, spare) if leases else None
        if parts is None or not any(part.cleared.victims for part in parts):
            return None  # the gang fits on free GPUs, but rule 3 forbids to place it there
        return parts

    def _endable(self, gpu_type: str, *, only_long: bool) -> dict[int, list[Ranked]]:
        """Return the leases that the round may end, by tenant, with their attained GPU-time.

        The result is computed once. It may include leases on nodes where the round has since ended
        a lease.
        """
        known = self._known.get((gpu_type, only_long))
        if known is None:
            known = self._known[gpu_type, only_long] = {}
            for rows in self._index(gpu_type).by_node.values():
                for lease in rows:
                    attained = self._attained(lease)
                    if not only_long or attained >= LONG_GPU_US:
                        known.setdefault(lease.tenant, []).append((attained, lease))
        return known

    def _take(
        self, one: EvenCandidate, gpu_type: str, parts: list[NodePart], rule: PreemptionRule,
        numbers: dict[str, int],
    ) -> bool:  # fmt: skip # rows of what belongs together
        progress, job = self._progress, one.job
        free = progress.free_by_type[gpu_type]
        for part in parts:
            node = part.cleared.node
            self._clear(one, gpu_type, part.cleared, rule, numbers)
            free.put(((node, part.gpus),))
            if part.cleared.victims:
                left = free.available.free[node]
                if left:  # these GPUs stay unassigned in this round
                    free.put(((node, left),))
                self._index(gpu_type).leave_out(node)
        placement = tuple(sorted((part.cleared.node, part.gpus) for part in parts))
        progress.give(job, gpu_type, placement, NOTE_OF[rule])
        return True

    def _rank(self, lease: Lease) -> Rank:
        """Return the rank that the lease's job would have if the lease ended in this round."""
        rank = self._ranks.get(lease.id)
        if rank is None:
            pool = self._progress.pool
            one = EvenCandidate(pool.jobs[lease.job], pool.sums[lease.job], lease)
            rank = self._ranks[lease.id] = pool.order.now(one)
        return rank

    def _attained(self, lease: Lease) -> float:
        return job_received(self._progress.pool.sums[lease.job], self._progress.pool.at_us)


# ---- when a lease can next end for a gang that overtakes ----

# Sums are rounded to whole numbers in each round, so true rates may be slightly higher.
MORE, LEAST_RATE = 1.01, 1e-4


class Gang(NamedTuple):
    """The first waiting gang of a kind that needs several nodes. Its rank falls by `rate` a us."""

    rank: Rank
    tenant: int
    rate: float


def waiting_gangs(
    progress: RoundProgress, key: ClaimKey, kinds: Kinds, claim: ClaimSums
) -> Iterator[Gang]:
    """Yield the claim's gangs that still wait and may overtake."""
    free, order = progress.free_by_type[key[1]], progress.pool.order
    if not progress.options.may_overtake:
        return
    for kind, entries in kinds.items():
        gpus, weight = kind[0], kind[5]
        if not entries or not free.available.size < gpus <= free.capacity:
            continue
        if weight:
            first = order.brought_up(entries[0], (key, gpus, weight))
            yield Gang(first[0], key[0], _fair_rate(claim, gpus, weight) / gpus)
        else:
            yield Gang(entries[0][0], key[0], 0.0)


def overtaken_from(
    progress: RoundProgress, lease: Lease, free_us: int, gangs: list[Gang], claim: ClaimSums, *,
    may_lose: bool,
) -> int | None:  # fmt: skip # rows of what belongs together
    """Return a time before which no gang that overtakes can end the lease; None if never.

    `free_us`: the time from which the lease may be preempted. `claim`: its tenant's claim.
    `may_lose`: whether the tenant keeps min(D, Q) without the lease. While nothing happens, ranks
    are linear in time: a waiting gang's rank falls, and a running job's rank rises.
    """
    pool = progress.pool
    at_us, row = pool.at_us, pool.sums[lease.job]
    rivals = [gang for gang in gangs if may_lose or gang.tenant == lease.tenant]
    if not rivals:
        return None
    long_us = row.held_since_us - (row.alloc_gpu_us - LONG_GPU_US) // row.held
    if max(free_us, long_us) > at_us:
        return max(free_us, long_us)
    if not any(gang.rank[0] for gang in rivals):
        return None  # a gang below the long-job threshold already comes before all long jobs
    now = pool.order.now(EvenCandidate(pool.jobs[lease.job], row, lease))
    rises = (row.held - _fair_rate(claim, row.demand, row.weight)) / row.demand
    spans = [
        (gang.rank[1] - now[1]) / (MORE * (gang.rate + rises) + LEAST_RATE)
        for gang in rivals
        if gang.rank >= now
    ]
    return at_us + int(min(spans)) if spans else None


def _fair_rate(claim: ClaimSums, demand: int, weight: int) -> float:
    """Return the GPUs that a job of a claim deserves, (13) of LTGF."""
    return min(float(demand), min(claim.demand, claim.quota) * weight / claim.weights)
