"""Search for leases that end before their expiry so that a gang fits on several nodes at once.

The functions are pure, as in `policies.shared.preemption` for one node.
"""

from collections.abc import Mapping
from typing import NamedTuple

from evenshare_core.domain.leases import Lease
from evenshare_core.policies.shared.preemption import (
    ClearedNode,
    RankedLease,
    fewest,
    may_lose,
)

Ranked = tuple[float, Lease]


class NodePart(NamedTuple):
    """The GPUs that a gang gets on one node, and the leases on the node that end for the gang."""

    cleared: ClearedNode
    gpus: int

    @property
    def taken(self) -> int:
        """Return the GPUs of the leases that end."""
        return sum(lease.placement[0][1] for lease in self.cleared.victims)


def clear_nodes(
    gpus: int,
    free: Mapping[int, int],
    leases: Mapping[int, list[Ranked]],
    spare: Mapping[int, int | None],
) -> list[NodePart] | None:
    """Return the nodes for a gang that does not fit yet, or None if they cannot be cleared.

    `free`: GPUs available to the gang, by node. `leases`: leases that may end, by node, with their
    rank. Of two leases of the same size, the one with the higher rank ends first. `spare`: GPUs
    that each tenant may lose, None if unlimited. Nodes are chosen one by one. Each time, the node
    that gives most of the missing GPUs is chosen, or on a tie the one with the fewest ending
    leases. Further ties are decided by the fewest excess GPUs, then by the lowest id.
    """
    left_of = dict(spare)
    rows = {
        node: sorted([(-row.gpus, -rank, row.id, row.tenant, row) for rank, row in kept])
        for node, kept in leases.items()
        if node in free
    }
    # The most GPUs that each node can give, ordered from the largest.
    reach = {node: count for node, count in free.items() if count}
    for node, ranked in rows.items():
        reach[node] = reach.get(node, 0) - sum([row[0] for row in ranked])
    order = sorted(reach, key=lambda node: (-reach[node], node))
    parts: list[NodePart] = []
    left = gpus if sum(reach.values()) >= gpus else 0
    while left > 0:
        best: tuple[tuple[int, int, int, int], NodePart] | None = None
        for node in order:
            if best is not None and min(left, reach[node]) < best[1].gpus:
                break
            part = _part(node, left, free[node], rows.get(node, []), left_of)
            if part is None:
                continue
            key = (-part.gpus, len(part.cleared.victims), part.taken - part.gpus, node)
            if best is None or key < best[0]:
                best = (key, part)
        if best is None:
            return None
        part = best[1]
        parts.append(part)
        order.remove(part.cleared.node)
        left -= part.gpus
        for lease in part.cleared.victims:
            limit = left_of[lease.tenant]
            if limit is not None:
                left_of[lease.tenant] = limit - lease.gpus
    return parts or None


def _part(
    node: int,
    left: int,
    free: int,
    ranked: list[RankedLease],
    spare: Mapping[int, int | None],
) -> NodePart | None:
    """Return up to `left` GPUs of the node as a part of the gang, or None if it can give no GPU."""
    gpus = min(left, free + _losable(ranked, spare))
    if gpus <= 0:
        return None
    victims: list[RankedLease] = []
    if gpus > free:
        single = [row for row in ranked if may_lose(spare[row[3]], row)]
        victims = fewest(gpus - free, single, spare)
        if not victims:
            raise AssertionError("leases that may all end are enough")
    return NodePart(ClearedNode(node, tuple([row[4] for row in victims])), gpus)


def _losable(ranked: list[RankedLease], spare: Mapping[int, int | None]) -> int:
    """Return the most GPUs that `fewest` could free by ending leases."""
    left_of = dict(spare)
    total = 0
    for row in ranked:
        limit = left_of[row[3]]
        if may_lose(limit, row):
            total -= row[0]
            if limit is not None:
                left_of[row[3]] = limit + row[0]
    return total
