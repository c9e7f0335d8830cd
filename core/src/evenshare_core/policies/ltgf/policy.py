"""LTGF: the two-phase lease scheduler of long-term GPU-time fairness.

Source: Z. Ye et al., "ASTRAEA: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters",
IEEE TPDS 2021, section 5.2, Algorithms 1 and 2; section 6.1.1, eq. (16).

| paper | here | unit |
|---|---|---|
| T, tenants | claims: one per (tenant, GPU type) | |
| N, pending jobs | candidates: pending jobs and jobs whose lease ended | |
| M, free GPUs | `placement.consolidated.FreeCapacity.available` | GPUs |
| rho_j (12) | `TenantClaim.rho()`: AllocTime / FairTime | ratio |
| rho_ij (15) | `TenantClaim.job_rho()` | ratio |
| reward_i | minus its score, `TenantClaim.score()` | ratio |
| r_i | `Job.gpus` | GPUs |
| t_lease | `snapshot.lease_us` | micro-seconds |

Equations implemented: (12), (15), (16); (8), (9), (13), (14) are in `fairness.gpu_time`.

Departures, each with its test in tests/papers/test_ltgf.py or test_ltgf_properties.py:
- Only jobs whose lease ends by this round are candidates, not all running ones
  (`TestRenewal`): rounds are much shorter than leases.
- `work_conserving` (default): a job that does not fit does not take its tenant out of the round
  (`TestFastEqualsLiteral`); line 17 when off.
- A tenant with FairTime = 0 sorts as rho = 0 until it received or was charged anything, then
  behind all others by GPU-time over quota: else one without quota would always be first
  (`TestUndefinedRho`). Its jobs likewise, by GPU-time over weight.
- A gang passed over at the head of the least-rho tenant for longer than K leases gets nodes
  held back until it fits (`TestBigGangsTurn`).
- A job that is picked again stays where it is whenever those that took its GPUs can have its
  new place instead (tests/unit/core/test_stability.py): picks and their order are unchanged.
- `fairness_window_s` applies to tenants; a job's rho counts from its submission
  (`TestFairnessWindow`).

All orders end in (submitted_us, id).
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import Any

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Decision, Grant, Key, Renew, Skip
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.placement.consolidated import FreeCapacity, free_capacity_by_type
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.policies.ltgf.queues import LtgfCandidate, TenantClaim, claims, kept_claims
from evenshare_core.policies.options import parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.reservation import RESERVED, RESERVED_TEXTS, Reservations
from evenshare_core.policies.shared.session import (
    NO_KEY,
    KeptRound,
    Session,
    SessionDecision,
    uncontested,
)
from evenshare_core.policies.shared.terms import ends_of, expired_ends


class Ltgf(Policy):
    """The policy; see the module's docstring."""

    name = "ltgf"
    version = "2"
    title = "Long-term GPU-time fairness"
    promise = "Over time, each tenant receives the GPU-time that it deserves."
    order_text = "The tenant with the least rho is served first, then its job with the least."
    quota_text = (
        "A quota is a long-term target: over a day a tenant receives it, as far as it asks for it;"
        " in a single round it may hold less, or borrow more."
    )
    note_texts = RESERVED_TEXTS
    traits = Traits(preempts=True, keys_drift=True, picks_by_rho=True)
    options_type = LtgfOptions
    promised = frozenset({Property.LONG_TERM_ORDER})

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round; needs `snapshot.service` at the round's instant."""
        tenants, pick, reservations = self.picks(snapshot)
        grants, renewals = keep_placements(pick.grants, pick.renewals, snapshot.leases)
        renewed = {renewal.lease for renewal in renewals}
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(grants),
            renewals=tuple(renewals),
            ends=expired_ends(snapshot, renewed, pick.refused),
            skips=_skips(tenants, pick),
            memory=reservations.memory(pick.picked),
        )

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return Algorithm 1's order of jobs, charging each tenant as if every gang fitted."""
        options = parse_options(LtgfOptions, snapshot.options)
        tenants = claims(snapshot, options)
        reservations = Reservations.load(snapshot, options.reserve_after_leases)
        pending = _pending(tenants)
        reservations.keep({job: claim.gpu_type for job, (claim, _) in pending.items()})
        order: dict[int, None] = {}

        def serve(claim: TenantClaim, job: Job) -> None:
            if job.id not in order:
                order[job.id] = None
                claim.alloc += job.gpus * snapshot.lease_us

        for _, job_id in reservations.gangs():
            claim, candidate = pending[job_id]
            serve(claim, candidate.job)
        heap = [claim.entry(index) for index, claim in enumerate(tenants) if claim.queue]
        heapify(heap)
        while heap:
            index = heap[0][-1]
            claim = tenants[index]
            serve(claim, claim.queue[claim.next].job)
            claim.next += 1
            if claim.next < len(claim.queue):
                heapreplace(heap, claim.entry(index))
            else:
                heappop(heap)
        return tuple(order)

    def session(self, options: dict[str, Any]) -> Session:
        """Return queues that go on from round to round."""
        return IncrementalLtgf(parse_options(LtgfOptions, options))

    def picks(self, snapshot: Snapshot) -> tuple[list[TenantClaim], LtgfPicks, Reservations]:
        """Run Algorithms 1 and 2: who gets what, in the order of the picks."""
        options = parse_options(LtgfOptions, snapshot.options)
        tenants = claims(snapshot, options)
        pick = LtgfPicks.begin(snapshot, options)
        reservations = Reservations.load(snapshot, options.reserve_after_leases)
        select(tenants, pick, reservations, options)
        return tenants, pick, reservations


POLICY = Ltgf()


class IncrementalLtgf:
    """LTGF on free GPUs and sums that are kept between rounds; the queues are made anew in each."""

    def __init__(self, options: LtgfOptions) -> None:
        self._options = options

    def decide(self, view: KeptRound) -> SessionDecision:
        """Answer a round as `Ltgf.decide` answers its snapshot."""
        options = self._options
        if not view.memory or not view.waiting:
            answer = uncontested(view, {}, spread=options.spread)
            if answer is not None:
                return answer
        tenants = kept_claims(view, options)
        free_by_type = view.free_capacity(spread=options.spread)
        for claim in tenants:  # a type whose nodes are all gone
            if claim.gpu_type not in free_by_type:
                free_by_type[claim.gpu_type] = FreeCapacity({}, {}, {})
        pick = LtgfPicks(view.at_us, view.lease_us, free_by_type, view.admission(), explains=False)
        reservations = Reservations.load(view, options.reserve_after_leases)
        select(tenants, pick, reservations, options)
        grants, renewals = keep_placements(pick.grants, pick.renewals, view.due)
        renewed = {renewal.lease for renewal in renewals}
        return SessionDecision(
            grants,
            [lease for lease in view.due if lease.id in renewed],
            ends_of(view.due, view.gpus, renewed, pick.refused),
            reservations.memory(pick.picked),
        )

    def quiet_until(self, at_us: int) -> int | None:
        """Who is passed over changes with time; where nobody remembers it, nothing does.

        While nothing fits, whoever comes first: with line 17 that must be asked.
        """
        options = self._options
        is_timeless = options.work_conserving and not options.reserve_after_leases
        return None if is_timeless else at_us


def select(
    tenants: list[TenantClaim], pick: LtgfPicks, reservations: Reservations, options: LtgfOptions
) -> None:
    """Fill `pick`: the whole of Algorithm 1, on queues in the order of Algorithm 2."""
    _serve_reserved(tenants, pick, reservations)
    _allocate(tenants, pick, reservations, work_conserving=options.work_conserving)


def _serve_reserved(
    tenants: list[TenantClaim], pick: LtgfPicks, reservations: Reservations
) -> None:
    """A gang that waited too long goes first; if it does not fit, nodes are held back for it."""
    if not reservations:
        return
    pending = {
        job_id: row
        for job_id, row in _pending(tenants).items()
        if row[1].job.gpus <= pick.free_by_type[row[0].gpu_type].capacity
    }
    reservations.keep({job_id: claim.gpu_type for job_id, (claim, _) in pending.items()})
    for gpu_type, job_id in reservations.gangs():
        claim, candidate = pending[job_id]
        if pick.try_job(claim, candidate, note=RESERVED):
            reservations.served(gpu_type, job_id)
        elif job_id not in pick.refused:
            reservations.hold_back(gpu_type, candidate.job.gpus, pick.free_by_type[gpu_type])


def _pending(tenants: list[TenantClaim]) -> dict[int, tuple[TenantClaim, LtgfCandidate]]:
    """Jobs that hold nothing, by id, each with the claim in whose queue it is."""
    return {
        candidate.job.id: (claim, candidate)
        for claim in tenants
        for candidate in claim.queue
        if candidate.lease is None
    }


class LtgfPicks:
    """What the round has given so far."""

    def __init__(
        self, at_us: int, lease_us: int, free_by_type: dict[str, FreeCapacity],
        admission: Admission,
        *, explains: bool = True,
    ) -> None:  # fmt: skip
        """Nothing so far; free GPUs by type. `explains`: tell the numbers of each pick."""
        self._explains = explains
        self.at_us = at_us
        self.lease_us = lease_us
        self.free_by_type = free_by_type
        self.admission = admission
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.picked: set[int] = set()
        self.refused: dict[int, Refusal] = {}
        self.passed_over: dict[tuple[int, str], int] = {}  # claim: job that did not fit, line 17
        self.served_rho: dict[str, float] = {}  # highest tenant rho served, per type

    @classmethod
    def begin(cls, snapshot: Snapshot, options: LtgfOptions) -> LtgfPicks:
        """The free GPUs and the limits of a snapshot."""
        free_by_type = free_capacity_by_type(
            snapshot.nodes, snapshot.leases, snapshot.at_us, spread=options.spread
        )
        for row in snapshot.service.claims:  # a type whose nodes are all gone
            free_by_type.setdefault(row.gpu_type, FreeCapacity({}, {}, {}))
        return cls(snapshot.at_us, snapshot.lease_us, free_by_type, Admission.of(snapshot))

    def try_job(self, claim: TenantClaim, candidate: LtgfCandidate, note: str = "") -> bool:
        """Lines 9-15: give the candidate its gang and charge its tenant, if it fits."""
        job, sums, lease = candidate.job, candidate.sums, candidate.lease
        gpu_type = claim.gpu_type
        free_capacity = self.free_by_type[gpu_type]
        refusal = self.admission.check(job, gpu_type)
        if job.gpus > free_capacity.capacity:
            refusal = Refusal(Reason.TOO_LARGE)
        if refusal is not None:
            self.refused[job.id] = refusal
            if lease is not None:
                free_capacity.drop(lease.placement)
            return False
        if lease is not None and free_capacity.renew(lease.placement):
            placement: Placement | None = lease.placement
        else:
            lease = None  # its GPUs were taken: it is placed anew
            placement = free_capacity.place(job.gpus)
        if placement is None:
            return False
        key = NO_KEY
        if self._explains:
            key = Key(claim.rho(), claim.job_rho(sums, self.at_us), note)
        self._give(claim, job, lease, placement, key)
        return True

    def _give(
        self, claim: TenantClaim, job: Job, lease: Lease | None, placement: Placement, key: Key
    ) -> None:
        gpu_type, order = claim.gpu_type, len(self.picked) + 1
        if lease is None:
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        else:
            self.renewals.append(
                Renew(order, lease.id, job.id, job.tenant, gpu_type, job.gpus, key)
            )
        self.picked.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)
        claim.alloc += job.gpus * self.lease_us  # line 14: for the rest of this round only
        if key.tenant_rho is not None and not key.note:
            served = self.served_rho.get(gpu_type, key.tenant_rho)
            self.served_rho[gpu_type] = max(served, key.tenant_rho)

    def leave_out(self, claim: TenantClaim, job_id: int) -> None:
        """Line 17; where nothing is free at all, that is the reason and not this rule."""
        if self.free_by_type[claim.gpu_type].available.total:
            self.passed_over[claim.tenant, claim.gpu_type] = job_id


def _allocate(
    tenants: list[TenantClaim],
    pick: LtgfPicks,
    reservations: Reservations,
    *,
    work_conserving: bool,
) -> None:
    """Algorithm 1, lines 4-17, with the tenants in a heap by (rho, arrival of the next job)."""
    picked, free_by_type = pick.picked, pick.free_by_type
    untried = set(free_by_type)  # types where no gang was tried yet: the first is the head
    heap = [claim.entry(index) for index, claim in enumerate(tenants) if claim.queue]
    heapify(heap)
    while heap:
        _, _, _, _, index = heap[0]
        claim = tenants[index]  # line 5
        candidate = claim.queue[claim.next]  # line 7
        free_capacity = free_by_type[claim.gpu_type]
        if not free_capacity.available.total and claim.gpu_type not in untried:
            heappop(heap)  # line 4: nothing of this type is left
            continue
        job_id = candidate.job.id
        if job_id in picked:
            pass  # the gang that nodes were held back for
        elif pick.try_job(claim, candidate):
            untried.discard(claim.gpu_type)
        elif job_id not in pick.refused:
            if claim.gpu_type in untried and candidate.lease is None:
                reservations.passed_over(job_id)
            untried.discard(claim.gpu_type)
            if not work_conserving:
                pick.leave_out(claim, job_id)
                heappop(heap)  # line 17
                continue
        claim.next += 1  # line 13
        if work_conserving and claim.gpu_type not in untried:
            _skip_hopeless(claim, free_capacity)
        if claim.next < len(claim.queue):
            heapreplace(heap, claim.entry(index))
        else:
            heappop(heap)


def _skip_hopeless(claim: TenantClaim, free_capacity: FreeCapacity) -> None:
    """Step over pending jobs that cannot fit; exact, since what is free only shrinks in a round."""
    queue, available = claim.queue, free_capacity.available
    largest, total, size = available.largest_free(), available.total, available.size
    index, end = claim.next, len(queue)
    while index < end and queue[index].lease is None:
        gpus = queue[index].job.gpus
        if gpus <= largest or (gpus <= total and (gpus > size or free_capacity.spread)):
            break
        index += 1
    claim.next = index


def _skips(tenants: list[TenantClaim], pick: LtgfPicks) -> tuple[Skip, ...]:
    """Every candidate that was not picked, with its reason."""
    queues = []
    for claim in tenants:
        jobs = [candidate.job for candidate in claim.queue if candidate.job.id not in pick.picked]
        if jobs:
            served = pick.served_rho.get(claim.gpu_type)
            out = pick.passed_over.get((claim.tenant, claim.gpu_type))
            queues.append(
                explain.Queue(claim.tenant, claim.gpu_type, jobs, claim.rho(), served, out)
            )
    return tuple(explain.skips(queues, pick.free_by_type, pick.admission))
