"""Consolidated placement: a gang goes to the fewest nodes, over buckets of free GPUs.

Source: LTGF section 5 ("deploys a job on as few nodes as possible") and
5.1.2 (2)-(3) for renewals. Rules, per GPU type:

- A gang that fits the largest node goes to one node: the one with the least free GPUs that
  suffices, the lowest id on ties. It waits when no node has room, unless `spread` is set.
- A larger gang takes the nodes with the most free GPUs first (fewest nodes); what is left of it
  goes to the node with the least free GPUs that suffices, so that whole nodes stay free for the
  next one.

Finding a node costs O(node size + log nodes), not O(nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.leases import Lease


class FreeGpus:
    """Free GPUs of the nodes of one type, in buckets by how many are free.

    A bucket is a heap of node ids with lazy deletion: an entry counts only while its node has
    as many free GPUs as the bucket says.
    """

    __slots__ = ("_buckets", "free", "size", "total")

    def __init__(self, free: Mapping[int, int], size: int) -> None:
        self.free = dict(free)
        self.size = size  # of the largest node: what a gang on one node can be at most
        self.total = sum(self.free.values())
        self._buckets: list[list[int]] = [[] for _ in range(size + 1)]
        for node, gpus in self.free.items():
            self._buckets[gpus].append(node)
        for bucket in self._buckets:
            heapify(bucket)

    def set(self, node: int, gpus: int) -> None:
        """Say how many GPUs of a node are free now."""
        before = self.free[node]
        if gpus == before:
            return
        if gpus < 0:
            raise ValueError(f"node {node} cannot have {gpus} free GPUs")
        self.free[node] = gpus
        self.total += gpus - before
        heappush(self._buckets[gpus], node)

    def take(self, placement: Placement) -> None:
        """Mark GPUs as used."""
        for node, gpus in placement:
            self.set(node, self.free[node] - gpus)

    def give(self, placement: Placement) -> None:
        """Mark GPUs as free again."""
        for node, gpus in placement:
            self.set(node, self.free[node] + gpus)

    def has(self, placement: Placement) -> bool:
        """Whether exactly these GPUs are free."""
        return all(self.free.get(node, 0) >= gpus for node, gpus in placement)

    def largest_free(self) -> int:
        """The most GPUs free on one node."""
        for gpus in range(self.size, 0, -1):
            if self._least(gpus) is not None:
                return gpus
        return 0

    def fits(self, gpus: int, *, spread: bool = False) -> bool:
        """Whether `find` would place a gang."""
        if gpus > self.total:
            return False
        return gpus > self.size or spread or self.largest_free() >= gpus

    def find(self, gpus: int, *, spread: bool = False) -> Placement | None:
        """Return where a gang would go, or None; takes nothing."""
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
        """The lowest node with exactly `gpus` free."""
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
        """Fewest nodes for a gang that is known to fit in `total`."""
        taken: list[tuple[int, int]] = []
        needed = gpus
        count = self.size
        while count < needed or self._least(count) is None:
            node = self._least(count)
            if node is None:
                count -= 1  # nothing this full is left
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
        """Take a node's entries out of its bucket; there may be more than one."""
        bucket = self._buckets[count]
        while bucket and bucket[0] == node:
            heappop(bucket)


def fits_whole_nodes(placement: Placement, gpus: int, size: int) -> bool:
    """Whether a gang's placement is as consolidated as it can be on nodes of `size` GPUs."""
    whole, rest = divmod(gpus, size)
    return len(placement) == whole + bool(rest) and (
        sum(1 for _, count in placement if count == size) == whole
    )


def find_place(
    free: FreeGpus, gpus: int, *, whole_nodes: bool, spread: bool = False
) -> Placement | None:
    """Best fit on one node, else the fewest nodes; None when it must wait. Takes nothing."""
    placement = free.find(gpus, spread=spread)
    if placement is None or not whole_nodes or fits_whole_nodes(placement, gpus, free.size):
        return placement
    return placement if gpus <= free.size else None


class FreeCapacity:
    """Where gangs may go in one round, for one GPU type.

    `available`: GPUs that are free or held by a lease that ended and was not selected yet.
    `unheld`: the part of it that nobody holds; a new gang goes there first, so that it takes the
    GPUs of an ended lease only when it must. Such a lease can then not be renewed in place.
    Within a round `available` never grows, but for GPUs that are freed for a gang which takes them
    at once (`clear`): what does not fit once, does not fit later.
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
        """GPUs per node: installed, in leases that go on, in leases that ended."""
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
        """Begin another round with what is kept: its nodes that changed, and who ended.

        `free`: GPUs that nobody holds, of at least every node that anything happened on since
        the last round began. The numbers of the start are not kept: nobody is told reasons.
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
        """Place and take a gang, on GPUs that nobody holds if it can."""
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
        """Keep an ended lease on its GPUs if nobody took them; it is selected either way."""
        kept = self.available.has(placement)
        if kept:
            self.available.take(placement)
        self.drop(placement)
        return kept

    def drop(self, placement: Placement) -> None:
        """An ended lease gives up its GPUs."""
        for node, gpus in placement:
            self._ended[node] = self._ended.get(node, 0) - gpus
        self._settle(placement)

    def clear(self, placement: Placement) -> None:
        """A lease that goes on ends before its expiry: nobody holds its GPUs."""
        self.available.give(placement)
        self._settle(placement)

    def put(self, placement: Placement) -> None:
        """Take these GPUs; they are available."""
        self.available.take(placement)
        self._settle(placement)

    def hold_back(self, placement: Placement) -> None:
        """Keep GPUs from everyone for the rest of the round, as far as they are available."""
        for node, gpus in placement:
            count = min(gpus, self.available.free.get(node, 0))
            if count:
                self.held_back[node] = self.held_back.get(node, 0) + count
                self.available.take(((node, count),))
        self._settle(placement)

    def fits(self, gpus: int) -> bool:
        """Whether `place` would place a gang now."""
        return self.available.fits(gpus, spread=self.spread)

    def fitted_at_start(self, gpus: int) -> bool:
        """Whether the gang would have fitted before the round's first pick."""
        if gpus > self.start_total:
            return False
        return gpus > self.available.size or self.spread or gpus <= self.start_largest_free

    def would_fit_unheld(self, gpus: int) -> bool:
        """Whether the gang would fit if nothing was held back."""
        unheld = [self.available.free[node] + count for node, count in self.held_back.items()]
        largest_free = max(unheld, default=0)
        if gpus <= self.available.size and not self.spread:
            return gpus <= largest_free
        return gpus <= self.available.total + sum(self.held_back.values())

    def _settle(self, placement: Placement) -> None:
        """Nobody's GPUs = available less those of ended leases that may still be renewed."""
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
    """Return what is free of each GPU type at a round; leases that end by then are available.

    `types`: GPU types that are there too, though all their nodes may be gone.
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
