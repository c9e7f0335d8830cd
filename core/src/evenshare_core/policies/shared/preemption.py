"""Which leases end before their expiry so that a gang fits on one node at once.

Pure: who may be preempted, and how much may be taken from each tenant, goes in; the leases of one
node come out. Whether it pays, and for whom, is the policy's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from evenshare_core.domain.leases import Lease


class ClearedNode(NamedTuple):
    """A node on which a gang fits once these leases have ended."""

    node: int
    victims: tuple[Lease, ...]


def preemptible(leases: Iterable[Lease], at_us: int, min_runtime_us: int) -> list[Lease]:
    """Return the leases on one node that a round may end before their expiry.

    They have run for the minimum runtime, whatever protection they began with.
    """
    began_us = at_us - min_runtime_us
    return [
        lease
        for lease in leases
        if lease.protected_until_us <= at_us < lease.expires_us
        and lease.started_us <= began_us
        and len(lease.placement) == 1
    ]


class LeaseIndex:
    """Leases of one GPU type that may be preempted, by node."""

    def __init__(self) -> None:
        self.by_node: dict[int, list[Lease]] = {}
        self._nodes_of: dict[int, set[int]] | None = None

    def add(self, lease: Lease) -> None:
        """One lease, on one node."""
        node = lease.placement[0][0]
        rows = self.by_node.get(node)
        if rows is None:
            self.by_node[node] = [lease]
        else:
            rows.append(lease)

    def remove(self, leases: Iterable[Lease]) -> None:
        """They end in this round."""
        for lease in leases:
            self.by_node[lease.placement[0][0]].remove(lease)

    def leave_out(self, node: int) -> None:
        """No more leases of a node end in this round."""
        self.by_node.pop(node, None)

    @property
    def nodes_of(self) -> Mapping[int, set[int]]:
        """Where each tenant had leases when this was first asked."""
        if self._nodes_of is None:
            self._nodes_of = {}
            for node, rows in self.by_node.items():
                for lease in rows:
                    self._nodes_of.setdefault(lease.tenant, set()).add(node)
        return self._nodes_of

    def nodes(self, tenants: Iterable[int]) -> list[int]:
        """The nodes on which these tenants have leases, in order of ids."""
        nodes: set[int] = set()
        for tenant in tenants:
            nodes |= self.nodes_of.get(tenant, set())
        return sorted(node for node in nodes if node in self.by_node)


def fewest_victims(
    gpus: int,
    free: Mapping[int, int],
    index: LeaseIndex,
    spare: Mapping[int, int | None],
    *,
    most_gpus: int,
    rank: Callable[[Lease], float],
    above: float = float("-inf"),
) -> ClearedNode | None:
    """Return the node on which the fewest leases must end for a gang of `gpus`, and these leases.

    `free`: GPUs that the gang may have by node; it fits on none of them as it is. `spare`: by
    tenant, the GPUs that it may lose at most (None: any number); others lose nothing. Leases end
    whose `rank` is greater than `above`. Ties: the fewest GPUs taken in vain, then the greatest
    least rank, then the lowest node. None where no node can be cleared, or only by ending leases
    of more than `most_gpus` GPUs.
    """
    best: tuple[tuple[int, int, float, int], ClearedNode] | None = None
    for node in index.nodes(spare):
        needed = gpus - free.get(node, 0)
        rows = [lease for lease in index.by_node[node] if lease.tenant in spare]
        if needed <= 0 or sum(lease.placement[0][1] for lease in rows) < needed:
            continue
        ranked = [(rank(lease), lease) for lease in rows]
        victims = _fewest(needed, [row for row in ranked if row[0] > above], spare)
        taken = sum(lease.placement[0][1] for _, lease in victims)
        if not victims or taken > most_gpus:
            continue
        key = (len(victims), taken - needed, -min(row[0] for row in victims), node)
        if best is None or key < best[0]:
            best = (key, ClearedNode(node, tuple(lease for _, lease in victims)))
    return best[1] if best is not None else None


Ranked = tuple[float, Lease]


def _fewest(needed: int, rows: Sequence[Ranked], spare: Mapping[int, int | None]) -> list[Ranked]:
    """The fewest leases that free so many GPUs; [] where all of them are too few.

    Larger ones first, until one alone frees what is left: the smallest such.
    """
    left_of = dict(spare)
    chosen: list[Ranked] = []
    rest = sorted(rows, key=lambda row: (-row[1].placement[0][1], -row[0], row[1].id))
    while needed > 0:
        rest = [row for row in rest if _may_lose(left_of[row[1].tenant], row[1])]
        enough = [row for row in rest if row[1].placement[0][1] >= needed]
        if enough:
            row = min(enough, key=lambda row: (row[1].placement[0][1], -row[0], row[1].id))
        elif rest:
            row = rest[0]
        else:
            return []
        rest.remove(row)
        chosen.append(row)
        lease = row[1]
        needed -= lease.placement[0][1]
        limit = left_of[lease.tenant]
        if limit is not None:
            left_of[lease.tenant] = limit - lease.placement[0][1]
    return chosen


def _may_lose(limit: int | None, lease: Lease) -> bool:
    return limit is None or lease.placement[0][1] <= limit
