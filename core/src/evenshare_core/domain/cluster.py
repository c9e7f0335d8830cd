"""Nodes of a pool as a policy sees them."""

from collections.abc import Iterable, Mapping

from evenshare_core.domain.ids import NodeId
from evenshare_core.domain.values import Value


class Node(Value, frozen=True, array_like=True):
    """A server with GPUs of one type.

    `gpus` is the number that may be scheduled now: 0 for a drained or lost node.
    """

    id: NodeId
    gpu_type: str
    gpus: int


class Resources(Value, frozen=True, array_like=True):
    """CPUs and memory of a node, or of a job for all its GPUs together.

    `id` is that of the node or the job. 0 means that the job needs none.
    """

    id: int
    cpus: int = 0
    memory_mb: int = 0


# The GPUs that a job holds: (node id, GPUs there), sorted by node id, every count > 0.
Placement = tuple[tuple[NodeId, int], ...]


def capacity_by_type(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the GPUs that may be scheduled now, by type; 0 for a type whose nodes are lost."""
    capacity: dict[str, int] = {}
    for node in nodes:
        capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + node.gpus
    return capacity


def node_sizes(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the GPUs of the largest node of each type."""
    sizes: dict[str, int] = {}
    for node in nodes:
        sizes[node.gpu_type] = max(node.gpus, sizes.get(node.gpu_type, 0))
    return sizes


def fits_pool(gpus: int, gpu_types: Iterable[str], capacity: Mapping[str, int]) -> bool:
    """Return whether the pool has `gpus` GPUs of one of the types, free or not.

    If `gpu_types` is empty, any type is accepted.
    """
    return any(gpus <= capacity.get(name, 0) for name in tuple(gpu_types) or capacity)


def placement_gpus(placement: Placement) -> int:
    """Return the GPUs of a placement over all its nodes."""
    return sum(gpus for _, gpus in placement)


def gpus_by_node(placements: Iterable[Placement]) -> dict[int, int]:
    taken: dict[int, int] = {}
    for placement in placements:
        for node, gpus in placement:
            taken[node] = taken.get(node, 0) + gpus
    return taken
