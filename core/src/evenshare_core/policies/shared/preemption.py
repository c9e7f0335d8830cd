"""Which leases end before their expiry so that a gang fits on one node at once.

Pure: who may be preempted, and how much may be taken from each tenant, goes in; the leases of one
node come out. Whether it pays, and for whom, is the policy's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
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


class VictimRule(NamedTuple):
    """For whom leases may end, and which.

    `gpus`: the gang. `spare`: GPUs that a tenant may lose at most (None: any number). Leases end
    whose `rank` is greater than `above`, and leases of at most `most_gpus` GPUs in all.
    """

    gpus: int
    spare: Callable[[int], int | None]
    rank: Callable[[Lease], float]
    most_gpus: int
    above: float = float("-inf")


# Fewest leases, fewest GPUs taken in vain, greatest least rank, lowest node.
VictimKey = tuple[int, int, float, int]
Choice = tuple[VictimKey, ClearedNode]


def victims_on(
    node: int, free: Mapping[int, int], index: LeaseIndex, rule: VictimRule
) -> Choice | None:
    """Return the fewest leases of a node that must end for the gang; None where none may.

    `free`: GPUs that the gang may have by node; it does not fit there as it is.
    """
    needed = rule.gpus - free.get(node, 0)
    rows = index.by_node.get(node, ())
    if needed <= 0 or sum([lease.placement[0][1] for lease in rows]) < needed:
        return None
    spare = {tenant: rule.spare(tenant) for tenant in {lease.tenant for lease in rows}}
    ranked = [(rule.rank(lease), lease) for lease in rows if spare[lease.tenant] != 0]
    victims = fewest(needed, [row for row in ranked if row[0] > rule.above], spare)
    taken = sum([lease.placement[0][1] for _, lease in victims])
    if not victims or taken > rule.most_gpus:
        return None
    key = (len(victims), taken - needed, -min([row[0] for row in victims]), node)
    return key, ClearedNode(node, tuple([lease for _, lease in victims]))


def fewest_victims(
    nodes: Iterable[int], free: Mapping[int, int], index: LeaseIndex, rule: VictimRule
) -> Choice | None:
    """Return the best choice on any of these nodes; None where there is none."""
    choices = [one for node in nodes if (one := victims_on(node, free, index, rule)) is not None]
    return min(choices, key=lambda one: one[0], default=None)


class VictimSearch:
    """The best choice on all nodes, asked again and again while a round gives GPUs.

    In a round nodes have less and less to give, so what a node had stands until it is looked at
    again, which only the best one is. A tenant that may lose more than before, because it was
    given GPUs meanwhile, is seen there too late at worst.
    """

    def __init__(self, free: Mapping[int, int], index: LeaseIndex, rule: VictimRule) -> None:
        """Look at every node once."""
        self._free, self._index, self._rule = free, index, rule
        choices = [victims_on(node, free, index, rule) for node in sorted(index.by_node)]
        self._heap = [one[0] for one in choices if one is not None]
        heapify(self._heap)

    def best(self) -> Choice | None:
        """The best choice now; None where there is none."""
        heap = self._heap
        while heap:
            key = heap[0]
            now = victims_on(key[-1], self._free, self._index, self._rule)
            if now is None:
                heappop(heap)
            elif now[0] > key:
                heapreplace(heap, now[0])
            else:
                return now
        return None


Ranked = tuple[float, Lease]


def fewest(needed: int, rows: Sequence[Ranked], spare: Mapping[int, int | None]) -> list[Ranked]:
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
