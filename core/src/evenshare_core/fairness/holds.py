"""Leases after a round, recomputed only from the snapshot and the decision.

This module shares no code with `evenshare_core.domain.invariants`, which guards the decision, so
the two checks are independent.
"""

from collections import Counter
from dataclasses import dataclass

from evenshare_core.domain.cluster import Placement, gpus_by_node, placement_gpus
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease after the round; `fresh` if the round granted or renewed it."""

    job: int
    tenant: int
    gpu_type: str
    placement: Placement
    fresh: bool


def holds_after(snapshot: Snapshot, decision: Decision) -> list[HeldLease]:
    """Return all leases after the round: kept, renewed and granted."""
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
    """The number of checked rows, and the sorted ids of those that violate a rule."""

    checked: int
    broken: tuple[int, ...]


def gangs(snapshot: Snapshot, held: list[HeldLease]) -> RuleCount:
    """Return the jobs that hold fewer or more GPUs than their gang.

    A lease of a job that is not in the snapshot counts as correct: it is about to end.
    """
    sizes = {job.id: job.gpus for job in snapshot.jobs}
    broken = {
        hold.job
        for hold in held
        if (gpus := placement_gpus(hold.placement)) != sizes.get(hold.job, gpus)
    }
    return RuleCount(len(held), tuple(sorted(broken)))


def double_holders(held: list[HeldLease]) -> RuleCount:
    counts = Counter(hold.job for hold in held)
    return RuleCount(len(counts), tuple(sorted(job for job, count in counts.items() if count > 1)))


def overfull_nodes(snapshot: Snapshot, held: list[HeldLease]) -> RuleCount:
    """Return the nodes that give more GPUs than they have.

    A drained node keeps its leases until their end. It counts only if the round gave GPUs on it.
    """
    used = gpus_by_node(hold.placement for hold in held)
    fresh = {node for hold in held if hold.fresh for node, _ in hold.placement}
    sizes = {node.id: node.gpus for node in snapshot.nodes}
    broken = sorted(node for node in fresh if used[node] > sizes.get(node, 0))
    return RuleCount(len(snapshot.nodes), tuple(broken))
