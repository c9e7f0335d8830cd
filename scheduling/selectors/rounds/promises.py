"""Counts for a round's certificate, and the invariants, checked again on the stored bytes.

Pure. Properties that are not counted here are not promised: envy-freeness, sharing incentive,
Pareto efficiency and truthfulness are no invariants of a decision.
"""

from collections import Counter
from dataclasses import dataclass

from evenshare_core.domain.cluster import gpus_by_node, placement_gpus
from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """The counts of a decision; `broken` counts violations by rule of `domain.invariants`.

    leases = kept + renewed + granted after the round. `expired`: leases that had expired and were
    not protected. `preempted`: ended leases that had not expired. `capped`: waiting
    or served jobs with a maximum price. `explained`: the reasons given to the `waiting` jobs.
    """

    broken: dict[str, int]
    capacity: int
    leased: int
    own: int
    borrowed: int
    fullest: tuple[int, int]
    kept: int
    renewed: int
    granted: int
    expired: int
    ended: int
    preempted: int
    borrowing: int
    capped: int
    budgeted: int
    waiting: int
    explained: int

    @property
    def leases(self) -> int:
        return self.kept + self.renewed + self.granted

    def breaks(self, *rules: str) -> int:
        return sum(self.broken.get(rule, 0) for rule in rules)


def check_decision(snapshot: Snapshot, decision: Decision) -> DecisionCounts:
    """Check every invariant again and count the quantities of a certificate."""
    broken = Counter(row.rule for row in violations(snapshot, decision))
    decided = {end.lease for end in decision.ends} | {row.lease for row in decision.renewals}
    kept = [lease for lease in snapshot.leases if lease.id not in decided]
    early = {lease.id for lease in snapshot.leases if not lease.ends_by(snapshot.at_us)}
    terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
    holders = {lease.job for lease in kept} | {term.job for term in terms}
    own = sum(lease.own for lease in kept) + sum(term.own for term in terms)
    borrowed = sum(lease.borrowed for lease in kept) + sum(term.borrowed for term in terms)
    return DecisionCounts(
        broken=dict(broken),
        capacity=sum(node.gpus for node in snapshot.nodes),
        leased=sum(lease.gpus for lease in kept)
        + sum(row.gpus for row in decision.renewals)
        + sum(placement_gpus(grant.placement) for grant in decision.grants),
        own=own,
        borrowed=borrowed,
        fullest=_fullest(snapshot, decision),
        kept=len(kept),
        renewed=len(decision.renewals),
        granted=len(decision.grants),
        expired=sum(lease.ends_by(snapshot.at_us) for lease in snapshot.leases),
        ended=len(decision.ends),
        preempted=sum(row.lease in early for row in decision.preemptions),
        borrowing=sum(term.borrowed > 0 for term in terms),
        capped=sum(job.max_price_micro is not None for job in snapshot.jobs),
        budgeted=sum(tenant.spendable_micro is not None for tenant in snapshot.tenants),
        waiting=sum(job.id not in holders for job in snapshot.jobs),
        explained=sum(len(skip.jobs) for skip in decision.skips),
    )


def _fullest(snapshot: Snapshot, decision: Decision) -> tuple[int, int]:
    """Return (GPUs used, GPUs) of the node with the fewest free GPUs after the round."""
    ended = {end.lease for end in decision.ends}
    placements = [lease.placement for lease in snapshot.leases if lease.id not in ended]
    given = gpus_by_node((*placements, *(grant.placement for grant in decision.grants)))
    there = {node.id: node.gpus for node in snapshot.nodes if node.gpus}
    pairs = [(given.get(node_id, 0), gpus) for node_id, gpus in there.items()]
    return max(pairs, key=lambda pair: (pair[0] - pair[1], pair[0]), default=(0, 0))
