"""Held and free GPUs of a simulated pool, updated with leases and nodes."""

from collections.abc import Iterable

from evenshare_core.domain.cluster import Node, Placement, capacity_by_type, gpus_by_node
from evenshare_core.domain.leases import Lease
from evenshare_core.placement.consolidated import FreeCapacity, FreeGpus, free_capacity_by_type


class Occupancy:
    """GPUs by node and by GPU type.

    `gpus`: GPUs of each node that may be scheduled now. `free`, `capacity` and `held` are by type.
    `overfull`: nodes with fewer GPUs than their leases hold, because some GPUs were switched off.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.id: node for node in nodes}
        self.gpus: dict[int, int] = {}
        self.capacity = capacity_by_type(self._nodes.values())
        self.held: dict[str, int] = {}
        self.overfull: set[int] = set()
        self.version = 0  # increases with each change of held or offered GPUs
        self._load: dict[int, int] = {}
        self._sizes: dict[str, dict[int, int]] = {}
        for node in self._nodes.values():
            self.gpus[node.id], self._load[node.id] = node.gpus, 0
            self._sizes.setdefault(node.gpu_type, {})[node.id] = node.gpus
        self.free = {name: self._free(name) for name in self._sizes}
        self._touched: set[int] = (
            set()
        )  # nodes with leases that started or ended since the last call of `free_capacity`
        # results of the last call of `free_capacity`, by type
        self._kept: dict[str, FreeCapacity] = {}

    def _free(self, gpu_type: str) -> FreeGpus:
        sizes = self._sizes[gpu_type]
        free = {node: max(0, gpus - self._load[node]) for node, gpus in sizes.items()}
        return FreeGpus(free, max(sizes.values()))

    def resize(self, node_id: int, gpus: int) -> None:
        self.version += 1
        gpu_type, before = self._nodes[node_id].gpu_type, self.gpus[node_id]
        self.gpus[node_id] = self._sizes[gpu_type][node_id] = gpus
        self.capacity[gpu_type] += gpus - before
        self._note_load(node_id)
        if max(self._sizes[gpu_type].values()) == self.free[gpu_type].size:
            self.free[gpu_type].set(node_id, max(0, gpus - self._load[node_id]))
        else:
            self.free[gpu_type] = self._free(gpu_type)
        self._kept.pop(gpu_type, None)

    def take(self, lease: Lease) -> None:
        self._use(lease, 1)

    def give(self, lease: Lease) -> None:
        self._use(lease, -1)

    def _use(self, lease: Lease, sign: int) -> None:
        self.version += 1
        gpu_type, gpus = lease.gpu_type, 0
        free, load = self.free[gpu_type], self._load
        for node_id, count in lease.placement:
            gpus += count
            load[node_id] += sign * count
            free.set(node_id, max(0, self.gpus[node_id] - load[node_id]))
            self._touched.add(node_id)
            if load[node_id] > self.gpus[node_id] or self.overfull:
                self._note_load(node_id)
        self.held[gpu_type] = self.held.get(gpu_type, 0) + sign * gpus

    def _note_load(self, node_id: int) -> None:
        if self._load[node_id] > self.gpus[node_id]:
            self.overfull.add(node_id)
        else:
            self.overfull.discard(node_id)

    def free_capacity(
        self, due: Iterable[Lease], leases: Iterable[Lease], at_us: int, *, spread: bool
    ) -> dict[str, FreeCapacity]:
        """Return the capacity for gangs, by type, in a round that may take the leases in `due`.

        Kept results are updated for the nodes that changed. If a node was resized, its type's
        result is rebuilt. While a node is overfull, all results are rebuilt from `leases`.
        """
        if self.overfull:
            self._kept.clear()
            return free_capacity_by_type(self._nodes_now(), leases, at_us, spread=spread)
        # nodes that were held back are free again, unless they are used
        for one in self._kept.values():
            self._touched.update(one.held_back)
        fresh: dict[str, dict[int, int]] = {name: {} for name in self._sizes}
        for node_id in self._touched:
            gpu_type = self._nodes[node_id].gpu_type
            fresh[gpu_type][node_id] = self.free[gpu_type].free[node_id]
        self._touched.clear()
        ended: dict[str, list[Placement]] = {}
        for lease in due:
            ended.setdefault(lease.gpu_type, []).append(lease.placement)
            self._touched.update([node for node, _ in lease.placement])
        for gpu_type, sizes in self._sizes.items():
            kept = self._kept.get(gpu_type)
            if kept is None or kept.spread != spread:
                kept = self._kept[gpu_type] = FreeCapacity(sizes, self._load, {}, spread=spread)
            kept.again(fresh[gpu_type], ended.get(gpu_type, ()))
        return dict(self._kept)

    def unused(self, due: Iterable[Lease]) -> dict[str, int]:
        """Return the GPUs by type that are free if the leases in `due` end."""
        ended = gpus_by_node(lease.placement for lease in due)
        return {
            gpu_type: sum(
                max(0, gpus - self._load[node] + ended.get(node, 0)) for node, gpus in sizes.items()
            )
            for gpu_type, sizes in self._sizes.items()
        }

    def touch(self, placement: Placement) -> None:
        """Mark nodes as changed, because a placement on them was withdrawn in the round."""
        self._touched.update([node for node, _ in placement])

    def _nodes_now(self) -> list[Node]:
        return [Node(node.id, node.gpu_type, self.gpus[node.id]) for node in self._nodes.values()]
