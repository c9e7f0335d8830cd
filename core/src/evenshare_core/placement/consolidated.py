"""Consolidated placement: a gang goes to the fewest nodes. Nodes are kept in buckets by free GPUs.

Source: LTGF section 5 ("deploys a job on as few nodes as possible") and 5.1.2 (2)-(3) for renewals.
Rules, per GPU type:

- A gang that fits the largest node goes to the node with the fewest free GPUs that are enough; on a
  tie, to the lowest id. The gang waits if no node has room, unless `spread` is set.
- A larger gang takes the nodes with the most free GPUs first (fewest nodes). Its remainder goes to
  the node with the fewest free GPUs that are enough, so that whole nodes stay free for the next
  gang.

Finding a node costs O(node size + log nodes), not O(nodes).
"""

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
        self.size = size  # GPUs of the largest node: the largest gang that can be on one node
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
        """Return the placement of a gang without taking it, or None if the gang does not fit."""
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
        """Return the node with the lowest id that has exactly `gpus` free GPUs."""
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
        """Return the fewest nodes for a gang that is known to fit in the total free GPUs."""
        taken: list[tuple[int, int]] = []
        needed = gpus
        count = self.size
        while count < needed or self._least(count) is None:
            node = self._least(count)
            if node is None:
                count -= 1  # no other node has `count` free GPUs
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
        """Remove all entries of a node, of which there may be several, from its bucket."""
        bucket = self._buckets[count]
        while bucket and bucket[0] == node:
            heappop(bucket)


def fits_whole_nodes(placement: Placement, gpus: int, size: int) -> bool:
    """Return whether a placement uses the fewest nodes of `size` GPUs, at most one only partly."""
    whole, rest = divmod(gpus, size)
    return len(placement) == whole + bool(rest) and (
        sum(1 for _, count in placement if count == size) == whole
    )


def find_place(
    free: FreeGpus, gpus: int, *, whole_nodes: bool, spread: bool = False
) -> Placement | None:
    """Return the best fit on one node, or the fewest nodes, or None if the gang must wait.

    The GPUs are not taken.
    """
    placement = free.find(gpus, spread=spread)
    if placement is None or not whole_nodes or fits_whole_nodes(placement, gpus, free.size):
        return placement
    return placement if gpus <= free.size else None


class FreeCapacity:
    """The places for gangs of one GPU type in one round.

    `available` GPUs are free, or held by an ended lease that the round has not selected yet.
    `unheld` GPUs are only the free ones. A new gang goes to `unheld` GPUs first. It takes the GPUs
    of an ended lease only if nothing else fits; such a lease can then not be renewed in place.

    Within a round, `available` never grows, except for GPUs that are freed for a gang and taken at
    once (`clear`). So a gang that does not fit once does not fit later in the round.
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
        """Take three counts of GPUs per node: installed, in continuing leases, in ended leases."""
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
        """Start the next round from the previous state, the changed nodes, and the ended leases.

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
        """Place a gang and take its GPUs, on unheld GPUs if possible."""
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
        """Select an ended lease. Keep its GPUs if they are available; return whether they were."""
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
        """Reserve those of these GPUs that are not taken, for the rest of the round."""
        for node, gpus in placement:
            count = min(gpus, self.available.free.get(node, 0))
            if count:
                self.held_back[node] = self.held_back.get(node, 0) + count
                self.available.take(((node, count),))
        self._settle(placement)

    def hide(self, node: int, gpus: int, *, of_ended: int = 0) -> None:
        """Reserve available GPUs of a node for the rest of the round; a negative number undoes it.

        `of_ended`: how many of them are GPUs of an ended lease that has not been selected yet.
        """
        self._ended[node] = self._ended.get(node, 0) - of_ended
        self.held_back[node] = self.held_back.get(node, 0) + gpus
        self.available.set(node, self.available.free[node] - gpus)
        self._settle(((node, gpus),))

    def fits(self, gpus: int) -> bool:
        """Return whether `place` would place a gang now."""
        return self.available.fits(gpus, spread=self.spread)

    def fitted_at_start(self, gpus: int) -> bool:
        """Return whether the gang would have fitted at the start of the round."""
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
        """Update unheld GPUs: available GPUs minus those of leases that may still be renewed."""
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
    """Return the free capacity by GPU type at a round.

    GPUs of leases that end by then are available. `types` are GPU types to include even if they no
    longer have nodes.
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
