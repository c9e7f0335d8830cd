"""Consolidated placement: a gang goes to the fewest nodes, over buckets of free GPUs.

Source: LTGF section 5 ("deploys a job on as few nodes as possible") and 5.1.2 (2)-(3) for renewals.
Rules, per GPU type:

- A gang that fits the largest node goes to one node: the node with the fewest free GPUs that
  suffices; on ties the lowest id. It waits when no node has room, unless `spread` is set.
- A larger gang takes the nodes with the most free GPUs first (fewest nodes). Its rest goes
  to the node with the fewest free GPUs that suffices, so that whole nodes stay free for the
  next gang.

Finding a node costs O(node size + log nodes), not O(nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.leases import Lease


class FreeGpus:
    """Free GPUs of the nodes of one type, in buckets by the number of free GPUs.

    A bucket is a heap of node ids with lazy deletion. An entry is valid only while its node has the
    bucket's number of free GPUs.
    """

    __slots__ = ("_buckets", "free", "size", "total")

    def __init__(self, free: Mapping[int, int], size: int) -> None:
        self.free = dict(free)
        self.size = size  # GPUs of the largest node, the maximum of a gang on one node
        self.total = sum(self.free.values())
        self._buckets: list[list[int]] = [[] for _ in range(size + 1)]
        for node, gpus in self.free.items():
            self._buckets[gpus].append(node)
        for bucket in self._buckets:
            heapify(bucket)

    def set(self, node: int, gpus: int) -> None:
        before = self.free[node]
        if gpus == before:
            return
        if gpus < 0:
            raise ValueError(f"node {node} cannot have {gpus} free GPUs")
        self.free[node] = gpus
        self.total += gpus - before
        heappush(self._buckets[gpus], node)

    def take(self, placement: Placement) -> None:
        for node, gpus in placement:
            self.set(node, self.free[node] - gpus)

    def give(self, placement: Placement) -> None:
        for node, gpus in placement:
            self.set(node, self.free[node] + gpus)

    def has(self, placement: Placement) -> bool:
        return all(self.free.get(node, 0) >= gpus for node, gpus in placement)

    def largest_free(self) -> int:
        """Return the most GPUs free on one node."""
        for gpus in range(self.size, 0, -1):
            if self._least(gpus) is not None:
                return gpus
        return 0

    def fits(self, gpus: int, *, spread: bool = False) -> bool:
        """Return whether `find` would place a gang."""
        if gpus > self.total:
            return False
        return gpus > self.size or spread or self.largest_free() >= gpus

    def find(self, gpus: int, *, spread: bool = False) -> Placement | None:
        """Return the placement of a gang, without taking it; None if it does not fit."""
        if gpus > self.total:
            return None
        if gpus <= self.size:
            node = self._best_fit(gpus)
            if node is not None:
                return ((node, gpus),)
            if not spread:
                return None
        return self._fullest_first(gpus)

    def _least(self, gpus: int) -> int | None:
        """Return the node of lowest id with exactly `gpus` free."""
        bucket = self._buckets[gpus]
        while bucket and self.free[bucket[0]] != gpus:
            heappop(bucket)
        return bucket[0] if bucket else None

    def _best_fit(self, gpus: int) -> int | None:
        for count in range(gpus, self.size + 1):
            node = self._least(count)
            if node is not None:
                return node
        return None

    def _fullest_first(self, gpus: int) -> Placement:
        """Return the fewest nodes for a gang that is known to fit in `total`."""
        taken: list[tuple[int, int]] = []
        needed = gpus
        count = self.size
        while count < needed or self._least(count) is None:
            node = self._least(count)
            if node is None:
                count -= 1  # no further node has `count` free GPUs
                continue
            self._pop(count, node)
            taken.append((node, count))
            needed -= count
        last = self._best_fit(needed)
        for node, count in taken:
            heappush(self._buckets[count], node)
        if last is None:
            raise AssertionError("a node with at least what is left was just seen")
        return tuple(sorted([*taken, (last, needed)]))

    def _pop(self, count: int, node: int) -> None:
        """Remove all entries of a node from its bucket; there may be several."""
        bucket = self._buckets[count]
        while bucket and bucket[0] == node:
            heappop(bucket)


def fits_whole_nodes(placement: Placement, gpus: int, size: int) -> bool:
    """Return whether a placement is on the fewest nodes of `size` GPUs, all but one whole."""
    whole, rest = divmod(gpus, size)
    return len(placement) == whole + bool(rest) and (
        sum(1 for _, count in placement if count == size) == whole
    )


def find_place(
    free: FreeGpus, gpus: int, *, whole_nodes: bool, spread: bool = False
) -> Placement | None:
    """Return the best fit on one node, else the fewest nodes; None if the gang must wait.

    The placement is not taken.
    """
    placement = free.find(gpus, spread=spread)
    if placement is None or not whole_nodes or fits_whole_nodes(placement, gpus, free.size):
        return placement
    return placement if gpus <= free.size else None


class FreeCapacity:
    """The places for gangs in one round, for one GPU type.

    `available` GPUs are free, or held by an ended lease that the round has not selected yet.
    `unheld` GPUs are only the free ones. A new gang goes to `unheld` GPUs first. It takes the GPUs
    of an ended lease only if nothing else fits; such a lease can then not be renewed in place.

    Within a round `available` never grows, except for GPUs that are freed for a gang and taken at
    once (`clear`). So a gang that does not fit once does not fit later.
    """

    __slots__ = (
        "_ended",
        "available",
        "capacity",
        "held_back",
        "spread",
        "start_largest_free",
        "start_total",
        "unheld",
    )

    def __init__(
        self, gpus: Mapping[int, int], kept: Mapping[int, int], ended: Mapping[int, int],
        *, spread: bool = False,
    ) -> None:  # fmt: skip # rows of what belongs together
        """Take GPUs per node: installed, in leases that continue, and in leases that ended."""
        size = max(gpus.values(), default=0)
        available = {node: max(0, count - kept.get(node, 0)) for node, count in gpus.items()}
        self._ended = dict(ended)
        self.capacity = sum(gpus.values())
        self.available = FreeGpus(available, size)
        self.unheld = FreeGpus(
            {node: max(0, count - ended.get(node, 0)) for node, count in available.items()}, size
        )
        self.spread = spread
        self.held_back: dict[int, int] = {}
        self.start_total = self.available.total
        self.start_largest_free = self.available.largest_free()

    def again(self, free: Mapping[int, int], ended: Iterable[Placement]) -> None:
        """Start another round from the previous state, the changed nodes, and the ended leases.

        `free` has the unheld GPUs of at least every node that changed since the start of the last
        round. The `start_` numbers are not updated, because no reasons are reported.
        """
        for node, gpus in free.items():
            self.available.set(node, gpus)
            self.unheld.set(node, gpus)
        self.held_back = {}
        self._ended = {}
        for placement in ended:
            self.available.give(placement)
            for node, gpus in placement:
                self._ended[node] = self._ended.get(node, 0) + gpus

    def place(self, gpus: int) -> Placement | None:
        """Place and take a gang, on unheld GPUs if possible."""
        placement = self.unheld.find(gpus, spread=self.spread)
        if placement is not None:
            self.unheld.take(placement)
            self.available.take(placement)
            return placement
        placement = self.available.find(gpus, spread=self.spread)
        if placement is not None:
            self.available.take(placement)
            self._settle(placement)
        return placement

    def renew(self, placement: Placement) -> bool:
        """Select an ended lease; if its GPUs are available, keep them. Return whether they were."""
        kept = self.available.has(placement)
        if kept:
            self.available.take(placement)
        self.drop(placement)
        return kept

    def drop(self, placement: Placement) -> None:
        """Release the GPUs of an ended lease."""
        for node, gpus in placement:
            self._ended[node] = self._ended.get(node, 0) - gpus
        self._settle(placement)

    def clear(self, placement: Placement) -> None:
        """Free the GPUs of a lease that ends before its expiry."""
        self.available.give(placement)
        self._settle(placement)

    def put(self, placement: Placement) -> None:
        """Take these GPUs, which must be available."""
        self.available.take(placement)
        self._settle(placement)

    def hold_back(self, placement: Placement) -> None:
        """Reserve GPUs for the rest of the round, unless they are taken."""
        for node, gpus in placement:
            count = min(gpus, self.available.free.get(node, 0))
            if count:
                self.held_back[node] = self.held_back.get(node, 0) + count
                self.available.take(((node, count),))
        self._settle(placement)

    def fits(self, gpus: int) -> bool:
        """Return whether `place` would place a gang now."""
        return self.available.fits(gpus, spread=self.spread)

    def fitted_at_start(self, gpus: int) -> bool:
        """Return whether the gang would have fitted before the round's first pick."""
        if gpus > self.start_total:
            return False
        return gpus > self.available.size or self.spread or gpus <= self.start_largest_free

    def would_fit_unheld(self, gpus: int) -> bool:
        """Return whether the gang would fit if no GPUs were reserved for others."""
        unheld = [self.available.free[node] + count for node, count in self.held_back.items()]
        largest_free = max(unheld, default=0)
        if gpus <= self.available.size and not self.spread:
            return gpus <= largest_free
        return gpus <= self.available.total + sum(self.held_back.values())

    def _settle(self, placement: Placement) -> None:
        """Update unheld GPUs: available ones minus those of ended leases that may be renewed."""
        for node, _ in placement:
            if node in self.available.free:
                left = self.available.free[node] - self._ended.get(node, 0)
                self.unheld.set(node, max(0, left))


def free_capacity_by_type(
    nodes: Iterable[Node],
    leases: Iterable[Lease],
    at_us: int,
    *,
    spread: bool = False,
    types: Iterable[str] = (),
) -> dict[str, FreeCapacity]:
    """Return the free capacity by GPU type at a round; GPUs of leases that end by then are free.

    `types` are GPU types to include even if all their nodes are gone.
    """
    gpus: dict[str, dict[int, int]] = {}
    for node in nodes:
        gpus.setdefault(node.gpu_type, {})[node.id] = node.gpus
    for gpu_type in types:
        gpus.setdefault(gpu_type, {})
    kept: dict[int, int] = {}
    ended: dict[int, int] = {}
    for lease in leases:
        side = ended if lease.ends_by(at_us) else kept
        for node_id, count in lease.placement:
            side[node_id] = side.get(node_id, 0) + count
    return {
        gpu_type: FreeCapacity(by_node, kept, ended, spread=spread)
        for gpu_type, by_node in gpus.items()
    }
