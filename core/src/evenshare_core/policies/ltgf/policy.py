"""LTGF: the two-phase lease scheduler of long-term GPU-time fairness.

Source: Z. Ye et al., "ASTRAEA: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters", IEEE
TPDS 2021. Section 5.2, Algorithms 1 and 2; section 6.1.1, eq. (16).

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

- Of running jobs, only those whose lease ends by this round are candidates (`TestRenewal`), since
  rounds are much shorter than leases.
- `work_conserving` (default): a job that does not fit does not take its tenant out of the round
  (`TestFastImplementation`). Line 17 applies if the option is off.
- A tenant with FairTime = 0 sorts as rho = 0 until it has received or been charged GPU-time. After
  that it comes after all others, by GPU-time over quota. Else a tenant without quota would
  always be first (`TestUndefinedRho`). Tenants without quota follow, the one with the least
  GPU-time first (`TestWithoutQuota`). Jobs with FairTime = 0 sort in the same way, by GPU-time
  over weight.
- The first job of the tenant with the lowest rho may be skipped for longer than K leases. Nodes are
  then held back for this job until it fits (`TestBigGangReservation`).
- A job that is picked again keeps its GPUs if the jobs that got them can have its new GPUs instead
  (tests/unit/core/test_stability.py). Picks and their order do not change.
- A job that accepts several GPU types is in its tenant's queue of each type, and is served on the
  type whose turn comes first. If possible, it stays on the type of its lease. It does not borrow on
  one type while its tenant's quota of another type has room (`TestDeficitOfSeveralTypes`). The
  paper has one type.
- `fairness_window_s` applies to tenants; a job's rho counts from its submission
  (`TestFairnessWindow`).

All orders end in (submitted_us, id).
"""

from heapq import heapify, heappop, heapreplace
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.ids import Fields
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.order import KeptGpus, OrderRule
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.policies.ltgf.picks import (
    OTHER_TYPE_TEXTS,
    LtgfPicks,
    keep_reserved,
    pending,
    select,
    skips,
)
from evenshare_core.policies.ltgf.queues import (
    TIED_VERSION,
    TenantClaim,
    claims,
    kept_claims,
)
from evenshare_core.policies.ltgf.quiet import CalmQueues, EmptyRound, calm_queues, stays_until
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy, Private, Traits
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.policies.shared.reservation import (
    MEMORY_IDS,
    RESERVED,
    RESERVED_TEXTS,
    Reservations,
)
from evenshare_core.policies.shared.session import (
    KeptRound,
    Session,
    SessionDecision,
    uncontested,
)
from evenshare_core.policies.shared.terms import ends_of, expired_ends


class Ltgf(Policy):
    name = "ltgf"
    # version 5: tenants without quota are served by the GPU-time that they received
    version = "5"
    earlier_versions = frozenset({TIED_VERSION})
    title = "Long-term GPU-time fairness"
    promise = "Over time, each tenant receives its fair share of GPU-time."
    suits = "Tenants with quotas whose jobs should run until their leases end."
    order_text = (
        "The tenant with the lowest rho (GPU-time received / fair share) is served"
        " first, then its job with the lowest."
    )
    quota_text = (
        "A quota is a long-term target: over a day a tenant receives its quota, up to its"
        " demand. In a single round it may hold less, or borrow more."
    )
    quota_kind = QuotaPromiseKind.LONG_TERM
    note_texts = MappingProxyType({**RESERVED_TEXTS, **OTHER_TYPE_TEXTS})
    traits = Traits(preempts=True, picks_by_rho=True)
    memory_ids = Fields(MEMORY_IDS)
    options_type = LtgfOptions
    promised = frozenset({Property.LONG_TERM_ORDER})

    def decide(self, snapshot: Snapshot) -> Decision:
        tenants, pick, reservations = self.picks(snapshot)
        grants, renewals = keep_placements(pick.grants, pick.renewals, snapshot.leases)
        renewed = {renewal.lease for renewal in renewals}
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(grants),
            renewals=tuple(renewals),
            ends=expired_ends(snapshot, renewed, pick.refused_leases(snapshot.leases)),
            skips=skips(tenants, pick),
            memory=reservations.memory(pick.picked),
        )

    def reads(self, options: Options) -> frozenset[Private]:
        """Return the data that the base reads, and deadlines if the options reward them."""
        has_bonus = isinstance(options, LtgfOptions) and bool(options.deadline_bonus)
        return super().reads(options) | ({Private.DEADLINE} if has_bonus else frozenset())

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return the order of jobs by Algorithm 1. Tenants are charged as if every gang fitted."""
        options = parse_options(LtgfOptions, snapshot.options)
        tenants = claims(snapshot, options)
        reservations = Reservations.load(snapshot, options.reserve_after_leases)
        pick = LtgfPicks.begin(snapshot, options)
        waiting = pending(tenants, reservations, pick)
        keep_reserved(waiting, reservations, pick)
        order: dict[int, None] = {}

        def serve(claim: TenantClaim, job: Job) -> None:
            if job.id not in order:
                order[job.id] = None
                claim.alloc += job.gpus * snapshot.lease_us

        for _, job_id in reservations.gangs():
            claim, candidate = waiting[job_id]
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

    def order_rule(self, options: Options, snapshot: Snapshot, decision: Decision) -> OrderRule:
        """Return the order by rho. Gangs that waited too long come first, whatever their rho."""
        assert isinstance(options, LtgfOptions)  # noqa: S101 - narrows; they are of `options_type`
        kept_us = options.reserve_after_leases * snapshot.lease_us
        before = Reservations.load(snapshot, options.reserve_after_leases)
        after = Reservations.load(replace(snapshot, memory=decision.memory), 1)
        return OrderRule(
            by_quota=options.deserves_quota,
            is_tied=snapshot.policy_version == TIED_VERSION,
            work_conserving=options.work_conserving,
            spread=options.spread,
            passed_since=before.passed_since,
            late_us=snapshot.at_us - kept_us if kept_us else None,
            late_note=RESERVED,
            kept=tuple(KeptGpus(*row) for row in after.kept) if kept_us else (),
        )

    def session(self, options: dict[str, Any]) -> Session:
        return IncrementalLtgf(parse_options(LtgfOptions, options))

    def picks(self, snapshot: Snapshot) -> tuple[list[TenantClaim], LtgfPicks, Reservations]:
        """Run Algorithms 1 and 2; return the claims, the picks in order, and the reservations."""
        options = parse_options(LtgfOptions, snapshot.options)
        tenants = claims(snapshot, options)
        pick = LtgfPicks.begin(snapshot, options)
        reservations = Reservations.load(snapshot, options.reserve_after_leases)
        select(tenants, pick, reservations, options)
        return tenants, pick, reservations


POLICY = Ltgf()


class IncrementalLtgf:
    """LTGF on sums and free GPUs that are kept between rounds.

    The queues are rebuilt in each round.
    """

    outlasts_renewals = True

    def __init__(self, options: LtgfOptions) -> None:
        self._options = options
        self._last: EmptyRound | None = None  # the last round that tried jobs
        self._calm: CalmQueues | None = None  # set after a round without grants
        self._has_renewed = False  # whether the last round that tried jobs renewed leases

    def decide(self, view: KeptRound) -> SessionDecision:
        """Decide a round with the same result as `Ltgf.decide` on its snapshot."""
        options = self._options
        if not view.memory or not view.waiting:
            answer = uncontested(view, {}, spread=options.spread)
            if answer is not None:
                self._last = self._calm = None
                self._has_renewed = bool(view.due)
                return answer
        if self._calm is not None and view.is_still and self._calm.only_renews(view):
            return SessionDecision((), view.due, (), view.memory)
        self._calm = None
        tenants = kept_claims(view, options)
        free_by_type = view.free_capacity(spread=options.spread)
        for claim in tenants:  # a type that no longer has nodes
            if claim.gpu_type not in free_by_type:
                free_by_type[claim.gpu_type] = FreeCapacity({}, {}, {})
        pick = LtgfPicks(view.at_us, view.lease_us, free_by_type, view.admission(), explains=False)
        reservations = Reservations.load(view, options.reserve_after_leases)
        select(tenants, pick, reservations, options)
        self._last = EmptyRound(view, tenants, pick, reservations, options)
        grants, renewals = keep_placements(pick.grants, pick.renewals, view.due)
        renewed = {renewal.lease for renewal in renewals}
        self._has_renewed = bool(renewed)
        return SessionDecision(
            grants,
            [lease for lease in view.due if lease.id in renewed],
            ends_of(view.due, view.gpus, renewed, pick.refused_leases(view.due)),
            reservations.memory(pick.picked),
        )

    def quiet_until(self, at_us: int) -> int | None:
        """Return until when rounds grant nothing, in us, or None if passing time changes nothing.

        Time only changes which job is first in line, and only reservations depend on this. While
        nothing fits, the order makes no difference, except for line 17.
        """
        options = self._options
        if self._calm is not None:
            return self._calm.until_us
        if self._has_renewed or not options.work_conserving:
            return at_us
        until_us: int | None = None
        if options.reserve_after_leases:
            until_us = at_us if self._last is None else stays_until(self._last)
        if self._last is not None and until_us != at_us:
            self._calm = calm_queues(self._last, until_us)
        return until_us
