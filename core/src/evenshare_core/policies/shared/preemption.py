"""Search for leases that end before their expiry so that a gang fits on one node at once.

The functions are pure. Their inputs are the preemptible leases and the number of GPUs that each
tenant may lose. Their result is a set of leases on one node. The policy decides for which jobs
leases may end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from evenshare_core.domain.cluster import gpus_by_node
from evenshare_core.domain.leases import Lease


class ClearedNode(NamedTuple):
    """A node, and the leases that must end there for a gang to fit."""

    node: int
    victims: tuple[Lease, ...]


def preemptible(leases: Iterable[Lease], at_us: int, min_runtime_us: int) -> list[Lease]:
    """Return the single-node leases that a round may end before their expiry.

    These leases have run for the minimum runtime, and the protection given at their start is over.
    """
    began_us = at_us - min_runtime_us
    return [
        lease
        for lease in leases
        if lease.protected_until_us <= at_us < lease.expires_us
        and lease.started_us <= began_us
        and len(lease.placement) == 1
    ]


def overfull_nodes(leases: Iterable[Lease], gpus: Mapping[int, int]) -> set[int]:
    """Return the nodes that have fewer GPUs than their leases hold.

    On these nodes, a lease that ends frees no GPUs.
    """
    load = gpus_by_node(lease.placement for lease in leases)
    return {node for node, count in load.items() if count > gpus.get(node, 0)}


# (-GPUs, -rank, id, tenant, lease): larger leases sort first, then leases with a higher rank.
RankedLease = tuple[int, float, int, int, Lease]


class LeaseIndex:
    """The preemptible leases of one GPU type, by node.

    `gpus`: the GPUs of these leases, by node. All rules that use an index rank its leases in the
    same way, so `ranks`, by lease id, is computed once.
    """

    def __init__(self) -> None:
        self.by_node: dict[int, list[Lease]] = {}
        self.gpus: dict[int, int] = {}
        self.ranks: dict[int, float] = {}
        self._nodes_of: dict[int, set[int]] | None = None

    def add(self, lease: Lease) -> None:
        """Add a lease on one node."""
        node, gpus = lease.placement[0]
        rows = self.by_node.get(node)
        if rows is None:
            self.by_node[node], self.gpus[node] = [lease], gpus
        else:
            rows.append(lease)
            self.gpus[node] += gpus

    def remove(self, leases: Iterable[Lease]) -> None:
        """Remove leases that the round ends."""
        for lease in leases:
            node, gpus = lease.placement[0]
            self.by_node[node].remove(lease)
            self.gpus[node] -= gpus

    def leave_out(self, node: int) -> None:
        """Exclude a node, so that no more leases on it end in this round."""
        self.by_node.pop(node, None)
        self.gpus.pop(node, None)

    @property
    def nodes_of(self) -> Mapping[int, set[int]]:
        """Return the nodes of each tenant's leases. They are computed on first access."""
        if self._nodes_of is None:
            self._nodes_of = {}
            for node, rows in self.by_node.items():
                for lease in rows:
                    self._nodes_of.setdefault(lease.tenant, set()).add(node)
        return self._nodes_of

    def nodes(self, tenants: Iterable[int]) -> list[int]:
        """Return the nodes on which these tenants have leases, in order of ids."""
        nodes: set[int] = set()
        for tenant in tenants:
            nodes |= self.nodes_of.get(tenant, set())
        return sorted(node for node in nodes if node in self.by_node)


class VictimRule(NamedTuple):
    """The rule for leases that may end, and the size of the gang for which they end.

    `spare` returns the GPUs that a tenant may lose, None if unlimited. Only leases with a `rank`
    above `above` may end, with at most `most_gpus` GPUs in total.
    """

    gpus: int
    spare: Callable[[int], int | None]
    rank: Callable[[Lease], float]
    most_gpus: int
    above: float = float("-inf")


# (number of leases, excess GPUs, -(lowest rank), node): the lowest tuple is best.
VictimKey = tuple[int, int, float, int]
Choice = tuple[VictimKey, ClearedNode]


def victims_on(
    node: int,
    free: Mapping[int, int],
    index: LeaseIndex,
    rule: VictimRule,
    most_leases: int | None = None,
) -> Choice | None:
    """Return the fewest leases of a node that must end for the gang, or None if impossible.

    `free`: GPUs available to the gang, by node; the gang does not fit on this node yet.
    `most_leases`: choices of more leases are not needed; None if there is no limit.
    """
    chosen = _fewest(node, free, index, rule, {}, most_leases=most_leases)
    if chosen is None:
        return None
    key, rows = chosen
    return key, ClearedNode(node, tuple([row[4] for row in rows]))


def fewest_victims(
    nodes: Iterable[int],
    free: Mapping[int, int],
    index: LeaseIndex,
    rule: VictimRule,
    known: Choice | None = None,
) -> Choice | None:
    """Return the best of `known` and the choices on these nodes, or None without any choice."""
    best = known
    for node in nodes:
        most = best[0][0] if best is not None else None
        one = victims_on(node, free, index, rule, most)
        if one is not None and (best is None or one[0] < best[0]):
            best = one
    return best


class VictimSearch:
    """A search for the best choice on all nodes, which can be repeated while a round gives GPUs.

    In a round, choices only get worse. A node's result is therefore kept, and only the best is
    recomputed. A tenant that has got GPUs in the meantime may lose more than before; the search may
    miss such a choice.
    """

    def __init__(self, free: Mapping[int, int], index: LeaseIndex, rule: VictimRule) -> None:
        self._free, self._index, self._rule = free, index, rule
        spare: dict[int, int | None] = {}
        choices = [_fewest(node, free, index, rule, spare) for node in index.by_node]
        self._heap = [one[0] for one in choices if one is not None]
        heapify(self._heap)

    def best(self) -> Choice | None:
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


def _fewest(
    node: int,
    free: Mapping[int, int],
    index: LeaseIndex,
    rule: VictimRule,
    spare: dict[int, int | None],
    *,
    most_leases: int | None = None,
) -> tuple[VictimKey, list[RankedLease]] | None:
    """Return the fewest leases of a node that free the missing GPUs, or None.

    `spare`: the cached results of the rule's `spare`, by tenant.
    """
    needed = rule.gpus - free.get(node, 0)
    if needed <= 0 or index.gpus.get(node, 0) < needed:
        return None
    rest = _losable(index, node, rule, spare)
    if not rest or (most_leases is not None and most_leases * -rest[0][0] < needed):
        return None
    chosen = fewest(needed, rest, spare)
    in_vain = -sum([row[0] for row in chosen]) - needed
    if not chosen or needed + in_vain > rule.most_gpus:
        return None
    return (len(chosen), in_vain, max([row[1] for row in chosen]), node), chosen


def fewest(
    needed: int, rows: list[RankedLease], spare: Mapping[int, int | None]
) -> list[RankedLease]:
    """Return the fewest leases that free `needed` GPUs, or none if all together free too few.

    Larger leases are taken first, until a single lease can free the rest. The smallest lease that
    can is taken then. `rows`: sorted; no lease has more GPUs than its tenant may lose. `spare`:
    GPUs that each tenant may lose, None if unlimited.
    """
    chosen: list[RankedLease] = []
    rest, left_of = rows, spare
    while rest:
        best = _smallest_enough(rest, needed)
        chosen.append(best)
        needed += best[0]
        if needed <= 0:
            return chosen
        limit = left_of[best[3]]
        if limit is not None:
            left_of = {**left_of, best[3]: limit + best[0]}
        rest = [row for row in rest if row is not best and may_lose(left_of[row[3]], row)]
    return []


def _losable(
    index: LeaseIndex, node: int, rule: VictimRule, spare: dict[int, int | None]
) -> list[RankedLease]:
    """Return the leases of a node that may end under the rule, the largest first."""
    above, ranks, rows = rule.above, index.ranks, []
    for lease in index.by_node[node]:
        tenant, gpus = lease.tenant, lease.placement[0][1]
        if tenant in spare:
            limit = spare[tenant]
        else:
            limit = spare[tenant] = rule.spare(tenant)
        if limit is not None and limit < gpus:
            continue
        rank = ranks.get(lease.id)
        if rank is None:
            rank = ranks[lease.id] = rule.rank(lease)
        if rank > above:
            rows.append((-gpus, -rank, lease.id, tenant, lease))
    rows.sort()
    return rows


def _smallest_enough(rows: Sequence[RankedLease], needed: int) -> RankedLease:
    """Return the smallest lease that frees `needed` GPUs, or the first row if none frees enough."""
    best = rows[0]
    for row in rows:
        if -row[0] < needed:
            break
        if row[0] > best[0]:
            best = row
    return best


def may_lose(limit: int | None, row: RankedLease) -> bool:
    return limit is None or -row[0] <= limit
