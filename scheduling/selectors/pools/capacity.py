"""GPUs of nodes that are up, by type; quotas are scaled to them."""

from dataclasses import dataclass

from django.db.models import Q, Sum

from scheduling.models import GpuType, Node


@dataclass(frozen=True, slots=True)
class TypeCapacity:
    """A GPU type of a pool's nodes, with the GPUs that are up; 0 if no node is up."""

    id: int
    name: str
    gpus: int


def type_capacities(pool_id: int) -> list[TypeCapacity]:
    """Return a pool's GPU types, slowest first, with their GPUs that are up. A single query."""
    types = GpuType.objects.filter(node__pool_id=pool_id).annotate(
        up=Sum("node__gpus", filter=Q(node__effective_state=Node.State.UP))
    )
    rows = types.order_by("rank", "name").values_list("id", "name", "up")
    return [TypeCapacity(id_, name, gpus or 0) for id_, name, gpus in rows]


def gpus_by_type(pool_id: int) -> dict[int, int]:
    """Return a pool's GPUs that are up, by the id of their type. A single query."""
    return {row.id: row.gpus for row in type_capacities(pool_id)}


def gpu_type_ids() -> dict[str, int]:
    """Return the ids of all GPU types by name. A single query."""
    return dict(GpuType.objects.values_list("name", "id"))
