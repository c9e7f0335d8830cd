"""Nodes that are kept for jobs within quota until the borrowed leases there have ended.

If a job within quota finds no node with room, it waits until a node is clear. A node is clear when
it has enough free GPUs, counting borrowed leases whose terms are over by then. The node that will
be clear first is kept for the job: no borrowed lease starts or continues there. The node is clear
within one lease length, and only jobs of other owners can postpone this.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.leases import Lease

# (time at which the node will be clear, minus its free GPUs, its id); the lowest is kept
_Rank = tuple[int, int, int]


class ClearingNodes:
    """The nodes of one GPU type in a round, and when borrowed leases on them end."""

    def __init__(
        self,
        nodes: Iterable[Node],
        own: Iterable[Placement],
        borrowed: Iterable[tuple[Lease, int]],
        at_us: int,
    ) -> None:
        """`own`: GPUs held within quota from now on.

        `borrowed`: continuing leases, with the end of their terms. GPUs of ended leases count as
        free.
        """
        self._at_us = at_us
        self._free = {node.id: node.gpus for node in nodes}
        self._ends: dict[int, list[tuple[int, int]]] = {node_id: [] for node_id in self._free}
        self._kept = dict.fromkeys(self._free, 0)  # GPUs kept for earlier jobs, by node
        self._ranks: dict[int, list[_Rank]] = {}  # heaps of ranks, by the size of the gang
        for placement in own:
            self.take(placement)
        for lease, end_us in borrowed:
            self.take(lease.placement)
            for node_id, gpus in lease.placement:
                if node_id in self._ends:
                    self._ends[node_id].append((end_us, gpus))
        for ends in self._ends.values():
            ends.sort()

    def take(self, placement: Placement) -> None:
        """Reserve GPUs for a job within quota from now on."""
        for node_id, gpus in placement:
            if node_id in self._free:
                self._free[node_id] -= gpus

    def keep(self, gpus: int) -> int | None:
        """Keep the node that will be clear first for a gang.

        Return the node, or None if no node will be clear. On a tie, the node with the most free
        GPUs is kept. Taken or kept GPUs only make a node clear later, so only the first rank must
        be recomputed.
        """
        ranks = self._ranks.get(gpus)
        if ranks is None:
            ranks = self._ranks[gpus] = [
                rank for node_id in self._free if (rank := self._rank(node_id, gpus)) is not None
            ]
            heapify(ranks)
        while ranks:
            rank = self._rank(ranks[0][2], gpus)
            if rank == ranks[0]:
                self._kept[rank[2]] += gpus
                return rank[2]
            if rank is None:
                heappop(ranks)
            else:
                heapreplace(ranks, rank)
        return None

    def _rank(self, node_id: int, gpus: int) -> _Rank | None:
        free, needed = self._free[node_id], gpus + self._kept[node_id]
        if free >= needed:
            return (self._at_us, -free, node_id)
        room = free
        for end_us, count in self._ends[node_id]:
            room += count
            if room >= needed:
                return (end_us, -free, node_id)
        return None
