"""LTGF: the two-phase lease scheduler of long-term GPU-time fairness.

Source: Z. Ye et al., "ASTRAEA: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters",
IEEE TPDS 2021, section 5.2, Algorithms 1 and 2; section 6.1.1, eq. (16).

| paper | here | unit |
|---|---|---|
| T, tenants | claims: one per (tenant, GPU type) | |
| N, pending jobs | candidates: pending jobs and jobs whose lease ended | |
| M, free GPUs | `placement.consolidated.Room.reach` | GPUs |
| rho_j (12) | `_Claim.rank()`: AllocTime / FairTime | ratio |
| rho_ij (15) | `_Candidate[7]` | ratio |
| reward_i | minus `_Candidate[1]` | ratio |
| r_i | `_Candidate[5]` | GPUs |
| t_lease | `snapshot.lease_us` | micro-seconds |

Equations implemented: (12), (15), (16); (8), (9), (13), (14) are in `fairness.gpu_time`.

Departures, each with its test in tests/papers/test_ltgf.py:
- Only jobs whose lease ends by this round are candidates, not all running ones
  (`TestRenewal`): rounds are much shorter than leases.
- `work_conserving` (default): a job that does not fit does not take its tenant out of the round
  (`TestFastEqualsLiteral`); line 17 when off.
- A tenant with FairTime = 0 sorts as rho = 0 until it received or was charged anything, then
  behind all others by GPU-time over quota: else one without quota would always be first
  (`TestUndefinedRho`). Its jobs likewise, by GPU-time over weight.
- A gang passed over at the head of the least-rho tenant for longer than K leases gets nodes
  held back until it fits (`TestBigGang`).
- `fairness_window_s` applies to tenants; a job's rho counts from its submission
  (`TestFairnessWindow`).

All orders end in (submitted_us, id).
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import inf
from typing import Annotated, Literal

from msgspec import Meta

from scheduling.domain.cluster import Placement
from scheduling.domain.decision import Decision, End, Grant, Key, Renew, Skip
from scheduling.domain.jobs import Job
from scheduling.domain.leases import Lease
from scheduling.domain.reasons import EndReason, Reason
from scheduling.domain.snapshot import ClaimService, Snapshot
from scheduling.domain.values import SECOND_US
from scheduling.fairness.gpu_time import ServiceView, job_received, windowed
from scheduling.placement.consolidated import Room, rooms
from scheduling.policies import explain
from scheduling.policies.admission import Admission, Refusal
from scheduling.policies.policy import Options, parse_options
from scheduling.policies.reservation import Reservations
from scheduling.policies.terms import end_reason

Bonus = Annotated[float, Meta(ge=0, le=1_000_000)]


class LtgfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of LTGF.

    `work_conserving`: try a tenant's next jobs when one does not fit; off: line 17.
    `tenant_share`: FairShare_j in tenant selection, "demand" is eq. (8), "quota" eq. (16).
    `new_jobs_first`: jobs that never held a lease before all others of their tenant (6.1.1).
    `reserve_after_leases`: K, after how many lease lengths nodes are held back for a gang that
    was passed over; 0: never. `fairness_window_s`: tenants' history that counts; 0: all.
    `spread`: a gang that fits one node may also be split over several.
    Reward hooks (5.2.1) add to -rho_ij, inside a tenant only: `new_job_bonus` for a job that
    never ran, `lease_bonus` per lease term so far, `deadline_bonus` x urgency, which grows from
    0 at `deadline_horizon_s` before the deadline to 1 at it.
    """

    work_conserving: bool = True
    tenant_share: Literal["demand", "quota"] = "demand"
    new_jobs_first: bool = False
    reserve_after_leases: Annotated[int, Meta(ge=0, le=1000)] = 2
    fairness_window_s: Annotated[int, Meta(ge=0, le=10 * 366 * 86_400)] = 0
    spread: bool = False
    new_job_bonus: Bonus = 0.0
    lease_bonus: Bonus = 0.0
    deadline_bonus: Bonus = 0.0
    deadline_horizon_s: Annotated[int, Meta(ge=1, le=366 * 86_400)] = 86_400

    @property
    def fairness_window_us(self) -> int:
        """Length of the fairness window of tenants; 0: all history counts."""
        return self.fairness_window_s * SECOND_US

    @property
    def hooked(self) -> bool:
        """Whether any reward hook is on."""
        return bool(self.new_job_bonus or self.lease_bonus or self.deadline_bonus)


# Section 6.1: the settings of the paper's evaluation (lease 900 s and round 10 s are the pool's).
PAPER_EVALUATION = LtgfOptions(
    work_conserving=False, tenant_share="quota", new_jobs_first=True, reserve_after_leases=0
)

# (not new, -reward, GPU-time while rho is undefined, submitted, id, gang, job, rho, lease);
# a tuple, because sorting 10,000 of them is most of a round. It is sorted up to the id.
_Candidate = tuple[bool, float, float, int, int, int, Job, float | None, Lease | None]


class _Claim:
    """A tenant's claim on one GPU type in this round: its sums and its queue."""

    __slots__ = ("alloc", "fair", "gpu_type", "next", "queue", "quota", "tenant")

    def __init__(self, row: ClaimService, at_us: int, *, by_quota: bool) -> None:
        self.tenant = row.tenant
        self.gpu_type = row.gpu_type
        self.quota = row.quota
        self.alloc, self.fair = windowed(row, at_us, by_quota=by_quota)  # line 2
        self.queue: list[_Candidate] = []
        self.next = 0

    def rho(self) -> float | None:
        """(12); None while nothing was deserved."""
        return self.alloc / self.fair if self.fair else None

    def rank(self) -> tuple[float, float]:
        """Least first. While rho is undefined: 0 before any GPU-time, then last by quota."""
        if self.fair:
            return self.alloc / self.fair, 0.0
        if not self.alloc:
            return 0.0, 0.0
        return inf, self.alloc / self.quota if self.quota else inf

    def entry(self, index: int) -> tuple[float, float, int, int, int]:
        """Its place in the heap of tenants; ties go to the earlier next job."""
        head = self.queue[self.next]
        return (*self.rank(), head[3], head[4], index)


class Ltgf:
    """The policy; see the module's docstring."""

    name = "ltgf"
    version = "1"
    options_type = LtgfOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round; needs `snapshot.service` at the round's instant."""
        options = parse_options(LtgfOptions, snapshot.options)
        claims = _claims(snapshot, options)
        pick = _Picks(snapshot, options)
        reservations = Reservations.load(snapshot, options.reserve_after_leases)
        pending = {c[4]: (claim, c) for claim in claims for c in claim.queue if c[8] is None}
        reservations.keep(
            {
                job_id: claim.gpu_type
                for job_id, (claim, candidate) in pending.items()
                if candidate[5] <= pick.rooms[claim.gpu_type].capacity
            }
        )
        for gpu_type, job_id in reservations.due():  # a gang that waited too long goes first
            claim, candidate = pending[job_id]
            if pick.try_job(claim, candidate, note="reserved"):
                reservations.served(gpu_type, job_id)
            elif job_id not in pick.refused:
                reservations.hold(gpu_type, candidate[5], pick.rooms[gpu_type])
        _allocate(claims, pick, options.work_conserving, reservations)
        renewed = {renewal.lease for renewal in pick.renewals}
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(pick.grants),
            renewals=tuple(pick.renewals),
            ends=_ends(snapshot, renewed, pick.refused),
            skips=_skips(claims, pick),
            memory=reservations.memory(pick.picked),
        )


POLICY = Ltgf()


def _claims(snapshot: Snapshot, options: LtgfOptions) -> list[_Claim]:
    """Lines 2-3 and Algorithm 2: every tenant's candidates in the order of their reward."""
    at_us = snapshot.at_us
    view = ServiceView(snapshot.service)
    by_quota = options.tenant_share == "quota"
    claims = {key: _Claim(row, at_us, by_quota=by_quota) for key, row in view.claims.items()}
    leases = {lease.job: lease for lease in snapshot.leases}
    integrals = view.classes
    new_first, hooked = options.new_jobs_first, options.hooked
    for job in snapshot.jobs:
        lease = leases.get(job.id)
        if lease is not None and not lease.ends_by(at_us):
            continue  # it keeps its GPUs
        row = view.jobs[job.id]
        key = (row.tenant, row.gpu_type)
        fair = integrals[(*key, row.demand, row.weight)] - row.baseline_gpu_us
        alloc = job_received(row, at_us) if row.alloc_gpu_us or row.held else 0
        rho = alloc / fair if fair else None  # (15)
        spent = 0.0 if fair or not alloc else alloc / row.weight
        score = (inf if spent else 0.0) if rho is None else rho
        if hooked:
            score -= _bonus(job, at_us, options)  # 5.2.1
        claims[key].queue.append(
            (
                new_first and job.terms > 0,
                score,
                spent,
                job.submitted_us,
                job.id,
                job.gpus,
                job,
                rho,
                lease,
            )  # fmt: skip
        )
    for claim in claims.values():
        claim.queue.sort()  # ids are unique, so it never compares further
    return [claims[key] for key in sorted(claims)]


def _bonus(job: Job, at_us: int, options: LtgfOptions) -> float:
    """The reward hooks of 5.2.1."""
    bonus = options.lease_bonus * job.terms
    if not job.terms:
        bonus += options.new_job_bonus
    if job.deadline_us is not None:
        left = (job.deadline_us - at_us) / (options.deadline_horizon_s * SECOND_US)
        bonus += options.deadline_bonus * (1 - min(1.0, max(0.0, left)))
    return bonus


class _Picks:
    """What the round has given so far."""

    def __init__(self, snapshot: Snapshot, options: LtgfOptions) -> None:
        self.lease_us = snapshot.lease_us
        self.rooms = rooms(snapshot.nodes, snapshot.leases, snapshot.at_us, spread=options.spread)
        for row in snapshot.service.claims:  # a type whose nodes are all gone
            self.rooms.setdefault(row.gpu_type, Room({}, {}, {}))
        self.admission = Admission(snapshot)
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.picked: set[int] = set()
        self.refused: dict[int, Refusal] = {}
        self.passed_over: dict[tuple[int, str], int] = {}  # claim: job that did not fit, line 17
        self.served_rho: dict[str, float | None] = {}  # highest tenant rho served, per type

    def try_job(self, claim: _Claim, candidate: _Candidate, note: str = "") -> bool:
        """Lines 9-15: give the candidate its gang and charge its tenant, if it fits."""
        job, lease = candidate[6], candidate[8]
        gpu_type = claim.gpu_type
        room = self.rooms[gpu_type]
        refusal = self.admission.check(job, gpu_type)
        if job.gpus > room.capacity:
            refusal = Refusal(Reason.TOO_LARGE)
        if refusal is not None:
            self.refused[job.id] = refusal
            if lease is not None:
                room.drop(lease.placement)
            return False
        if lease is not None and room.renew(lease.placement):
            placement: Placement | None = lease.placement
        else:
            lease = None  # its GPUs were taken: it is placed anew
            placement = room.place(job.gpus)
        if placement is None:
            return False
        self._give(claim, candidate, lease, placement, note)
        return True

    def _give(
        self, claim: _Claim, candidate: _Candidate, lease: Lease | None, placement: Placement,
        note: str,
    ) -> None:  # fmt: skip
        job, gpu_type = candidate[6], claim.gpu_type
        rho = claim.rho()
        key = Key(rho, candidate[7], note)
        order = len(self.picked) + 1
        if lease is None:
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        else:
            self.renewals.append(
                Renew(order, lease.id, job.id, job.tenant, gpu_type, job.gpus, key)
            )
        self.picked.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)
        claim.alloc += job.gpus * self.lease_us  # line 14: for the rest of this round only
        if rho is not None and not note:
            self.served_rho[gpu_type] = max(rho, self.served_rho.get(gpu_type) or 0.0)


def _allocate(
    claims: list[_Claim], pick: _Picks, work_conserving: bool, reservations: Reservations
) -> None:
    """Algorithm 1, lines 4-17, with the tenants in a heap by (rho, arrival of the next job)."""
    picked, rooms_ = pick.picked, pick.rooms
    untried = set(rooms_)  # types where no gang was tried yet: the first is the head
    heap = [claim.entry(index) for index, claim in enumerate(claims) if claim.queue]
    heapify(heap)
    while heap:
        claim = claims[heap[0][4]]  # line 5
        candidate = claim.queue[claim.next]  # line 7
        room = rooms_[claim.gpu_type]
        if not room.reach.total:
            heappop(heap)  # line 4: nothing of this type is left
            continue
        job_id = candidate[4]
        if job_id in picked:
            pass  # the gang that nodes were held back for
        elif pick.try_job(claim, candidate):
            untried.discard(claim.gpu_type)
        elif job_id not in pick.refused:
            if claim.gpu_type in untried and candidate[8] is None:
                reservations.passed_over(job_id)
            untried.discard(claim.gpu_type)
            if not work_conserving:
                pick.passed_over[claim.tenant, claim.gpu_type] = job_id
                heappop(heap)  # line 17
                continue
        claim.next += 1  # line 13
        if work_conserving and claim.gpu_type not in untried:
            _skip_hopeless(claim, room)
        if claim.next < len(claim.queue):
            heapreplace(heap, claim.entry(heap[0][4]))
        else:
            heappop(heap)


def _skip_hopeless(claim: _Claim, room: Room) -> None:
    """Step over pending jobs that cannot fit: room only shrinks in a round, so this is exact."""
    queue, reach = claim.queue, room.reach
    hole, total, size = reach.largest_hole(), reach.total, reach.size
    index, end = claim.next, len(queue)
    while index < end and queue[index][8] is None:
        gpus = queue[index][5]
        if gpus <= hole or (gpus <= total and (gpus > size or room.spread)):
            break
        index += 1
    claim.next = index


def _ends(snapshot: Snapshot, renewed: set[int], refused: dict[int, Refusal]) -> tuple[End, ...]:
    """Leases that ended and were not renewed, with the reason."""
    gpus = {node.id: node.gpus for node in snapshot.nodes}
    ends = []
    for lease in sorted(snapshot.leases, key=lambda lease: lease.id):
        if lease.id in renewed or not lease.ends_by(snapshot.at_us):
            continue
        reason = EndReason.NOT_RENEWED
        if any(gpus.get(node, 0) < count for node, count in lease.placement):
            reason = EndReason.DRAINED
        elif lease.job in refused:
            reason = end_reason(refused[lease.job].reason)
        ends.append(End(lease.id, lease.job, lease.tenant, reason))
    return tuple(ends)


def _skips(claims: list[_Claim], pick: _Picks) -> tuple[Skip, ...]:
    """Every candidate that was not picked, with its reason."""
    queues = []
    for claim in claims:
        jobs = [candidate[6] for candidate in claim.queue if candidate[4] not in pick.picked]
        if jobs:
            served = pick.served_rho.get(claim.gpu_type)
            out = pick.passed_over.get((claim.tenant, claim.gpu_type))
            queues.append(
                explain.Queue(claim.tenant, claim.gpu_type, jobs, claim.rho(), served, out)
            )
    return tuple(explain.skips(queues, pick.rooms, pick.admission))
