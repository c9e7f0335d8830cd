"""The picks of a round by Algorithms 1 and 2 of LTGF, in order.

Source: LTGF, Algorithm 1, lines 4-17. Departures are listed in
`evenshare_core.policies.ltgf.policy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from heapq import heapify, heappop, heappush, heapreplace

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Grant, Key, Renew, Skip
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.consolidated import FreeCapacity, free_capacity_by_type
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.policies.ltgf.queues import LtgfCandidate, TenantClaim
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.reservation import RESERVED, Reservations
from evenshare_core.policies.shared.session import NO_KEY

# The note of a pick on a type that is not the job's first choice, and its explanation.
OTHER_TYPE = "other_type"
OTHER_TYPE_TEXTS = {
    OTHER_TYPE: "It accepts several GPU types, and got this one when it could neither stay where it"
    " ran nor start within its tenant's quota of another."
}


def select(
    tenants: list[TenantClaim], pick: LtgfPicks, reservations: Reservations, options: LtgfOptions
) -> None:
    """Run Algorithm 1 on queues in the order of Algorithm 2, and store the picks in `pick`."""
    pick.homes = {(claim.tenant, claim.gpu_type): claim for claim in tenants}
    _serve_reserved(tenants, pick, reservations)
    _allocate(tenants, pick, reservations, work_conserving=options.work_conserving)


def _serve_reserved(
    tenants: list[TenantClaim], pick: LtgfPicks, reservations: Reservations
) -> None:
    """First serve gangs that waited too long, and hold back nodes for those that do not fit."""
    if not reservations:
        return
    waiting = {
        job_id: row
        for job_id, row in pending(tenants, reservations, pick).items()
        if row[1].job.gpus <= pick.free_by_type[row[0].gpu_type].capacity
    }
    keep_reserved(waiting, reservations, pick)
    for gpu_type, job_id in reservations.gangs():
        claim, candidate = waiting[job_id]
        if pick.try_job(claim, candidate, note=RESERVED):
            reservations.served(gpu_type, job_id)
        elif (job_id, gpu_type) not in pick.refused:
            reservations.hold_back(gpu_type, candidate.job.gpus, pick.free_by_type[gpu_type])


def keep_reserved(
    waiting: Mapping[int, tuple[TenantClaim, LtgfCandidate]],
    reservations: Reservations,
    pick: LtgfPicks,
) -> None:
    """Update the reservations for `waiting` jobs. Jobs that a limit refuses get no reservation."""
    types = {job_id: claim.gpu_type for job_id, (claim, _) in waiting.items()}
    refused = {
        job_id
        for job_id, (claim, one) in waiting.items()
        if not pick.may_run(one.job, claim.gpu_type)
    }
    reservations.keep(types, refused)


def pending(
    tenants: list[TenantClaim], reservations: Reservations, pick: LtgfPicks
) -> dict[int, tuple[TenantClaim, LtgfCandidate]]:
    """Return the jobs that were skipped and still hold no GPUs, by id, each with one of its claims.

    If GPUs are held back for a job, this is the claim on their type. If not, it is the claim on the
    first type on which no limit refuses the job now.
    """
    # Hot path: each round visits all waiting jobs, and few of them were ever first in line.
    passed = reservations.passed_since
    kept = {job_id: gpu_type for gpu_type, job_id in reservations.gangs()}
    rows = {}
    for claim in tenants:
        for one in claim.queue:
            if (
                one.job.id in passed
                and one.lease is None
                and (len(one.gpu_types) == 1 or claim.gpu_type == _held_back_type(one, kept, pick))
            ):
                rows[one.job.id] = (claim, one)
    return rows


def _held_back_type(one: LtgfCandidate, kept: Mapping[int, str], pick: LtgfPicks) -> str:
    """Return the type on which GPUs are (or would be) held back for a job that accepts several."""
    types = one.gpu_types
    reserved = kept.get(one.job.id)
    if reserved in types:
        types = (reserved, *types)
    return next((name for name in types if pick.may_run(one.job, name)), types[0])


class Outcome(Enum):
    """The result of a candidate's turn."""

    GIVEN = auto()
    REFUSED = auto()  # a limit refuses the job
    NO_ROOM = auto()
    LATER = auto()  # the candidate is tried after all others


class LtgfPicks:
    """The picks of the round so far."""

    def __init__(
        self, at_us: int, lease_us: int, free_by_type: dict[str, FreeCapacity],
        admission: Admission,
        *, explains: bool = True,
    ) -> None:  # fmt: skip # rows of what belongs together
        """Start without picks. `explains`: whether to record the numbers of each pick."""
        self._explains = explains
        self.at_us = at_us
        self.lease_us = lease_us
        self.free_by_type = free_by_type
        self.admission = admission
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.picked: set[int] = set()
        self.refused: dict[tuple[int, str], Refusal] = {}  # refusals by job and GPU type
        # candidates that are tried after all others
        self.later: list[tuple[TenantClaim, LtgfCandidate]] = []
        self.homes: dict[tuple[int, str], TenantClaim] = {}  # claims by (tenant, GPU type)
        # by claim, the job that did not fit and took the tenant out of the round (line 17)
        self.passed_over: dict[tuple[int, str], int] = {}
        self.served_rho: dict[str, float] = {}  # the highest rho of a served tenant, by type

    @classmethod
    def begin(cls, snapshot: Snapshot, options: LtgfOptions) -> LtgfPicks:
        """Start with a snapshot's free GPUs and limits."""
        types = [row.gpu_type for row in snapshot.service.claims]
        free_by_type = free_capacity_by_type(
            snapshot.nodes, snapshot.leases, snapshot.at_us, spread=options.spread, types=types
        )
        return cls(snapshot.at_us, snapshot.lease_us, free_by_type, Admission.of(snapshot))

    def may_run(self, job: Job, gpu_type: str) -> bool:
        """Return whether the type has enough GPUs for the job and no limit refuses it there."""
        if job.gpus > self.free_by_type[gpu_type].capacity:
            return False
        return self.admission.check(job, gpu_type) is None

    def reported_type(self, one: LtgfCandidate) -> str:
        """Return the type of a waiting job's shown reason: the first on which no limit refuses it.

        A limit on one type does not explain why the job waits for room on another.
        """
        types = one.gpu_types
        return next((name for name in types if self.may_run(one.job, name)), types[0])

    def try_job(self, claim: TenantClaim, candidate: LtgfCandidate, note: str = "") -> bool:
        """Give the job its gang, if it fits, and charge the tenant (lines 9-15)."""
        job, sums, lease = candidate.job, candidate.sums, candidate.lease
        gpu_type = claim.gpu_type
        if lease is not None and lease.gpu_type != gpu_type:
            lease = None  # the lease is on another type, so the job needs a new one
        free_capacity = self.free_by_type[gpu_type]
        refusal = self.admission.check(job, gpu_type)
        if job.gpus > free_capacity.capacity:
            refusal = Refusal(Reason.TOO_LARGE)
        if refusal is not None:
            self.refused[job.id, gpu_type] = refusal
            if lease is not None:
                free_capacity.drop(lease.placement)
            return False
        if lease is not None and free_capacity.renew(lease.placement):
            placement: Placement | None = lease.placement
        else:
            lease = None  # another job took the lease's GPUs, so the job needs a new lease
            placement = free_capacity.place(job.gpus)
        if placement is None:
            return False
        key = NO_KEY
        if self._explains:
            home = self.homes[job.tenant, sums.gpu_type]
            key = Key(claim.rho(), home.job_rho(sums, self.at_us), note)
        self._give(claim, job, lease, placement, key)
        return True

    def _give(
        self, claim: TenantClaim, job: Job, lease: Lease | None, placement: Placement, key: Key
    ) -> None:
        gpu_type, order = claim.gpu_type, len(self.picked) + 1
        if lease is None:
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        else:
            self.renewals.append(Renew.of(lease, order, key))
        self.picked.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)
        # line 14: the charge holds only for the rest of this round
        claim.alloc += job.gpus * self.lease_us
        if key.tenant_rho is not None and not key.note:
            served = self.served_rho.get(gpu_type, key.tenant_rho)
            self.served_rho[gpu_type] = max(served, key.tenant_rho)

    def offer(self, claim: TenantClaim, candidate: LtgfCandidate) -> Outcome:
        """Try a candidate in its turn; return the outcome."""
        if len(candidate.gpu_types) > 1 and self._comes_later(claim, candidate):
            self.later.append((claim, candidate))
            return Outcome.LATER
        if self.try_job(claim, candidate):
            return Outcome.GIVEN
        if (candidate.job.id, claim.gpu_type) in self.refused:
            return Outcome.REFUSED
        return Outcome.NO_ROOM

    def try_later(self) -> None:
        """Try the candidates of `later`, in the order of their turns."""
        for claim, candidate in self.later:
            is_out = (claim.tenant, claim.gpu_type) in self.passed_over
            if candidate.job.id not in self.picked and not is_out:
                self.try_job(claim, candidate, note=OTHER_TYPE)

    def _comes_later(self, claim: TenantClaim, candidate: LtgfCandidate) -> bool:
        """Return whether a job that accepts several types is tried on this type only at the end.

        If possible, a job stays on the type of its lease. It does not borrow on one type while its
        tenant's quota of another type has room for the job.
        """
        job, lease = candidate.job, candidate.lease
        if lease is not None:
            return lease.gpu_type != claim.gpu_type
        if self.admission.is_own(job, claim.gpu_type):
            return False
        return any(
            self.admission.is_own(job, name)
            and self.free_by_type[name].available.fits(
                job.gpus, spread=self.free_by_type[name].spread
            )
            for name in candidate.gpu_types
            if name != claim.gpu_type
        )

    def refused_leases(self, leases: Iterable[Lease]) -> dict[int, Refusal]:
        """Return the refusals of renewals, by job."""
        refused = ((one.job, self.refused.get((one.job, one.gpu_type))) for one in leases)
        return {job_id: refusal for job_id, refusal in refused if refusal is not None}

    def leave_out(self, claim: TenantClaim, job_id: int) -> None:
        """Apply line 17: take the tenant out of the round, unless no GPU was free in any case."""
        if self.free_by_type[claim.gpu_type].available.total:
            self.passed_over[claim.tenant, claim.gpu_type] = job_id


class _Turns:
    """The claims that may have the next turn, in a heap by (rho, arrival of the next job).

    When a job that accepts several types is served, it is removed from the heads of its other
    queues. The claims of these queues are pushed again. Their old entries are dropped when they
    reach the top.
    """

    def __init__(self, tenants: list[TenantClaim], picked: set[int]) -> None:
        self._tenants, self._picked = tenants, picked
        self._places = {(row.tenant, row.gpu_type): at for at, row in enumerate(tenants)}
        self._heap = []
        for index, claim in enumerate(tenants):
            self._step(claim)
            if claim.next < len(claim.queue):
                self._heap.append(claim.entry(index))
        heapify(self._heap)
        self._has_stale = False

    def least(self) -> TenantClaim | None:
        """Return the claim that line 5 chooses, or None if no queue has a job left."""
        heap = self._heap
        while heap:
            index = heap[0][-1]
            claim = self._tenants[index]
            if not self._has_stale or (
                claim.next < len(claim.queue) and claim.entry(index) == heap[0]
            ):
                return claim
            heappop(heap)
        return None

    def next(self, claim: TenantClaim) -> None:
        """Advance the top claim to its next job; remove the claim if it has none."""
        self._step(claim)
        if claim.next < len(claim.queue):
            heapreplace(self._heap, claim.entry(self._heap[0][-1]))
        else:
            heappop(self._heap)

    def leave(self, claim: TenantClaim) -> None:
        """Remove the top claim from the round."""
        claim.next = len(claim.queue)
        heappop(self._heap)

    def served(self, candidate: LtgfCandidate, gpu_type: str) -> None:
        """Remove a job of several types from the head of its other queues."""
        for name in candidate.gpu_types:
            index = self._places[candidate.job.tenant, name]
            claim = self._tenants[index]
            if name != gpu_type and claim.next < len(claim.queue):
                if claim.queue[claim.next] is not candidate:
                    continue
                self._step(claim)
                self._has_stale = True
                if claim.next < len(claim.queue):
                    heappush(self._heap, claim.entry(index))

    def _step(self, claim: TenantClaim) -> None:
        queue, picked, index = claim.queue, self._picked, claim.next
        while index < len(queue) and queue[index].job.id in picked:
            index += 1
        claim.next = index


def _allocate(
    tenants: list[TenantClaim],
    pick: LtgfPicks,
    reservations: Reservations,
    *,
    work_conserving: bool,
) -> None:
    free_by_type = pick.free_by_type
    # Types on which no gang has been tried yet. The first gang that is tried is first in line.
    untried = set(free_by_type)
    turns = _Turns(tenants, pick.picked)
    while (claim := turns.least()) is not None:  # line 5: the claim with the lowest rho
        candidate = claim.queue[claim.next]  # line 7: the first job in its queue
        free_capacity = free_by_type[claim.gpu_type]
        if not free_capacity.available.total and claim.gpu_type not in untried:
            turns.leave(claim)  # line 4: no GPU of this type is left
            continue
        outcome = pick.offer(claim, candidate)
        if outcome is Outcome.NO_ROOM and claim.gpu_type in untried and candidate.lease is None:
            reservations.passed_over(candidate.job.id)
        if outcome in {Outcome.GIVEN, Outcome.NO_ROOM}:
            untried.discard(claim.gpu_type)
        if outcome is Outcome.NO_ROOM and not work_conserving:
            pick.leave_out(claim, candidate.job.id)
            turns.leave(claim)  # line 17: the tenant leaves the round
            continue
        claim.next += 1  # line 13: the claim advances to its next job
        if work_conserving and claim.gpu_type not in untried:
            _skip_hopeless(claim, free_capacity)
        turns.next(claim)
        if outcome is Outcome.GIVEN and len(candidate.gpu_types) > 1:
            turns.served(candidate, claim.gpu_type)
    pick.try_later()


def _skip_hopeless(claim: TenantClaim, free_capacity: FreeCapacity) -> None:
    """Skip jobs that cannot fit.

    No job is skipped wrongly, because free GPUs only decrease in a round.
    """
    queue, available = claim.queue, free_capacity.available
    largest, total, size = available.largest_free(), available.total, available.size
    index, end = claim.next, len(queue)
    while index < end and queue[index].lease is None:
        gpus = queue[index].job.gpus
        if gpus <= largest or (gpus <= total and (gpus > size or free_capacity.spread)):
            break
        index += 1
    claim.next = index


def skips(tenants: list[TenantClaim], pick: LtgfPicks) -> tuple[Skip, ...]:
    """Return every candidate that was not picked, with its reason."""
    queues, picked = [], pick.picked
    for claim in tenants:
        waiting: dict[tuple[str, ...], list[Job]] = {}  # by the other types that the jobs accept
        alone: list[Job] = []
        for one in claim.queue:
            if one.job.id in picked:
                continue
            if len(one.gpu_types) == 1:
                alone.append(one.job)
            elif pick.reported_type(one) == claim.gpu_type:
                others = tuple(name for name in one.gpu_types if name != claim.gpu_type)
                waiting.setdefault(others, []).append(one.job)
        if alone:
            waiting[()] = alone
        served = pick.served_rho.get(claim.gpu_type)
        out = pick.passed_over.get((claim.tenant, claim.gpu_type))
        for others, jobs in sorted(waiting.items()):
            queues.append(
                explain.Queue(claim.tenant, claim.gpu_type, jobs, claim.rho(), served, out, others)
            )
    return tuple(explain.skips(queues, pick.free_by_type, pick.admission))
