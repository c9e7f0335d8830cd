"""What leases hold after a round, recomputed from the snapshot and the decision alone.

Written apart from `evenshare_core.domain.invariants`, which guards the decision: two pieces of code
that agree say more than one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import windowed


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease after the round. `fresh`: the round itself granted or renewed it."""

    job: int
    tenant: int
    gpu_type: str
    placement: Placement
    fresh: bool


def holds_after(snapshot: Snapshot, decision: Decision) -> list[HeldLease]:
    """Return every lease that is held when the round is over: kept, renewed, granted."""
    ended = {end.lease for end in decision.ends}
    renewed = {row.lease for row in decision.renewals}
    held = [
        HeldLease(lease.job, lease.tenant, lease.gpu_type, lease.placement, lease.id in renewed)
        for lease in snapshot.leases
        if lease.id not in ended
    ]
    held += [
        HeldLease(row.job, row.tenant, row.gpu_type, row.placement, True) for row in decision.grants
    ]
    return held


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How much was looked at, and the ids of what breaks a rule, sorted."""

    checked: int
    broken: tuple[int, ...]


def gangs(snapshot: Snapshot, held: list[HeldLease]) -> RuleCount:
    """Return the jobs that hold a part of their GPUs, or more than all.

    A lease of a job that the snapshot does not know counts as checked: it is on its way out.
    """
    sizes = {job.id: job.gpus for job in snapshot.jobs}
    broken = {
        hold.job
        for hold in held
        if sum(gpus for _, gpus in hold.placement) != sizes.get(hold.job, _total(hold))
    }
    return RuleCount(len(held), tuple(sorted(broken)))


def _total(hold: HeldLease) -> int:
    return sum(gpus for _, gpus in hold.placement)


def double_holders(held: list[HeldLease]) -> RuleCount:
    """Return the jobs with more than one lease."""
    counts = Counter(hold.job for hold in held)
    return RuleCount(len(counts), tuple(sorted(job for job, count in counts.items() if count > 1)))


def overfull_nodes(snapshot: Snapshot, held: list[HeldLease]) -> RuleCount:
    """Return the nodes that give more GPUs than they have.

    A node that was drained keeps its leases until their end: it counts only where the round
    itself gave GPUs on it.
    """
    used: Counter[int] = Counter()
    fresh = {node for hold in held if hold.fresh for node, _ in hold.placement}
    for hold in held:
        for node, gpus in hold.placement:
            used[node] += gpus
    sizes = {node.id: node.gpus for node in snapshot.nodes}
    broken = sorted(node for node in fresh if used[node] > sizes.get(node, 0))
    return RuleCount(len(snapshot.nodes), tuple(broken))


# ---- the order of long-term fairness ----


class PickedTerm(NamedTuple):
    """A pick of the round, in its order. `judged`: it was made by the plain order."""

    tenant: int
    gpus: int
    judged: bool


class OrderSums(NamedTuple):
    """What a tenant received and what was due to it, in GPU-microseconds, and its quota."""

    alloc_gpu_us: int
    fair_gpu_us: int
    quota: int


def order_broken(snapshot: Snapshot, decision: Decision, *, by_quota: bool) -> RuleCount:
    """Return tenants that were served while one with less GPU-time for its due still waited.

    Picks are played again in their order, per GPU type: each adds one lease of GPU-time to its
    tenant. Rho only rises in a round, so whoever is served later was in the queue before, and
    must have had at least the rho of whom it let go first. Not judged: gangs for which GPUs were
    kept. Left out: tenants a pick of whom was withdrawn, for it raised their rho unseen.

    `by_quota`: what is due is the quota at all times, eq. (16), else min(demand, quota), eq. (8).
    Source: LTGF, Algorithm 1, line 5.
    """
    at_us = decision.service.at_us
    sums = {
        (row.tenant, row.gpu_type): OrderSums(*windowed(row, at_us, by_quota=by_quota), row.quota)
        for row in decision.service.claims
    }
    unclear = {skip.tenant for skip in decision.skips if skip.numbers.get("withdrawn")}
    picks: dict[str, list[PickedTerm]] = {}
    terms: list[Grant | Renew] = [*decision.grants, *decision.renewals]
    for term in sorted(terms, key=lambda term: term.order):
        gpus = sum(g for _, g in term.placement) if isinstance(term, Grant) else term.gpus
        if term.tenant not in unclear:
            picks.setdefault(term.gpu_type, []).append(
                PickedTerm(term.tenant, gpus, not term.key.note)
            )
    broken: set[int] = set()
    for gpu_type, order in picks.items():
        of_type = {
            pick.tenant: sums.get((pick.tenant, gpu_type), OrderSums(0, 0, 0)) for pick in order
        }
        broken |= _out_of_order(order, of_type, snapshot.lease_us)
    return RuleCount(sum(len(order) for order in picks.values()), tuple(sorted(broken)))


def _out_of_order(order: list[PickedTerm], sums: dict[int, OrderSums], lease_us: int) -> set[int]:
    sums = dict(sums)
    ranks = {tenant: _rank(row) for tenant, row in sums.items()}
    left = Counter(pick.tenant for pick in order if pick.judged)
    broken = set()
    for tenant, gpus, judged in order:
        if judged:
            if any(ranks[other] < ranks[tenant] for other in left):
                broken.add(tenant)
            left[tenant] -= 1
            if not left[tenant]:
                del left[tenant]
        row = sums[tenant]
        sums[tenant] = OrderSums(row.alloc_gpu_us + gpus * lease_us, row.fair_gpu_us, row.quota)
        ranks[tenant] = _rank(sums[tenant])
    return broken


def _rank(row: OrderSums) -> tuple[float, float]:
    """Least first; while nothing is due: 0 before any GPU-time, then behind all by quota."""
    if row.fair_gpu_us:
        return row.alloc_gpu_us / row.fair_gpu_us, 0.0
    if not row.alloc_gpu_us:
        return 0.0, 0.0
    return float("inf"), row.alloc_gpu_us / row.quota if row.quota else float("inf")
