"""Quotas as buddy cells: GPUs of particular nodes that belong to a tenant.

Source: HiveD (OSDI 2020), 3: a tenant's quota is a virtual private cluster of cells. A cell of
level k is two buddies of level k - 1. All cells of a tenant can be used at the same time, whatever
other tenants hold.

A cell is a power-of-two number of GPUs on one node, at most the largest power of two that fits on a
node. On nodes of 8, a quota of 13 becomes the cells 8, 4 and 1. Placed largest first, power-of-two
sizes fill a node without a gap. So all cells fit on nodes if quotas do not exceed the pool. If node
sizes are not powers of two, a cell that fits on no node is halved.

Bindings are stored, so that a tenant keeps its nodes while others change.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.ids import Each, Fields, IdKind, Row

MEMORY_IDS = Fields({"cells": Each(Each(Row((IdKind.TENANT, None, IdKind.NODE))))})


class Cell(NamedTuple):
    """GPUs of a node that belong to a tenant."""

    tenant: int
    gpus: int
    node: int


def cell_sizes(quota: int, largest: int) -> list[int]:
    """Return the sizes of a quota's cells, largest first. `largest` is a power of two.

    For example, 13 GPUs in cells of at most 8 are 8, 4, 1.
    """
    whole, rest = divmod(quota, largest)
    bits = [1 << level for level in range(rest.bit_length() - 1, -1, -1) if rest >> level & 1]
    return [largest] * whole + bits


def bind_cells(
    nodes: Iterable[Node],
    quotas: Iterable[Entitlement],
    before: Iterable[Cell],
    held: Mapping[tuple[int, int], int],
) -> list[Cell]:
    """Return the cells of a GPU type, sorted.

    `before`: the cells of the last round, which are kept if they still fit quotas and nodes.
    `held`: GPUs in leases by (tenant, node); a new cell preferably goes to a node on which its
    tenant has leases. Cells that the pool has no room for are left out.
    """
    room = {node.id: node.gpus for node in sorted(nodes, key=lambda node: node.id) if node.gpus}
    if not room:
        return []
    largest = 1 << (max(room.values()).bit_length() - 1)
    needed = Counter((row.tenant, size) for row in quotas for size in cell_sizes(row.gpus, largest))
    kept = _kept(room, needed, before)
    bound = _bind(room, needed, kept, held, may_halve=False)
    if bound is None:  # kept cells may leave no room for the other cells
        bound = _bind(room, needed, [], held, may_halve=False)
    if bound is None:
        bound = _bind(room, needed, [], held, may_halve=True)
    return sorted(bound or [])


def _kept(
    room: Mapping[int, int], needed: Counter[tuple[int, int]], before: Iterable[Cell]
) -> list[Cell]:
    left, wanted, kept = dict(room), Counter(needed), []
    for cell in sorted(before):
        key = (cell.tenant, cell.gpus)
        if wanted[key] > 0 and left.get(cell.node, 0) >= cell.gpus:
            wanted[key] -= 1
            left[cell.node] -= cell.gpus
            kept.append(cell)
    return kept


def _bind(
    room: Mapping[int, int],
    needed: Counter[tuple[int, int]],
    kept: list[Cell],
    held: Mapping[tuple[int, int], int],
    *,
    may_halve: bool,
) -> list[Cell] | None:
    """Bind all cells, largest first. Return None if a cell fits nowhere and may not be halved."""
    left, near = dict(room), dict(held)
    wanted = needed - Counter((cell.tenant, cell.gpus) for cell in kept)
    for cell in kept:
        left[cell.node] -= cell.gpus
        near[cell.tenant, cell.node] = near.get((cell.tenant, cell.node), 0) - cell.gpus
    bound = list(kept)
    while wanted:
        tenant, gpus = min(wanted, key=lambda key: (-key[1], key[0]))
        wanted[tenant, gpus] -= 1
        wanted += Counter()  # drop counts of 0
        fitting = [node for node, count in left.items() if count >= gpus]
        if fitting:
            node = min(fitting, key=lambda id_: _rank(tenant, gpus, id_, left, near))
            left[node] -= gpus
            near[tenant, node] = near.get((tenant, node), 0) - gpus
            bound.append(Cell(tenant, gpus, node))
        elif not may_halve:
            return None
        elif gpus > 1:
            wanted[tenant, gpus // 2] += 2
    return bound


def _rank(
    tenant: int,
    gpus: int,
    node: int,
    left: Mapping[int, int],
    near: Mapping[tuple[int, int], int],
) -> tuple[int, int, int]:
    """Return the sort key: the node with most of the tenant's GPUs first, then the tightest fit."""
    return (-max(0, min(gpus, near.get((tenant, node), 0))), left[node], node)


def cells_in(memory: Mapping[str, Any], gpu_type: str) -> list[Cell]:
    """Return the cells of a type that a memory contains, or no cells if it contains none."""
    return [Cell(*row) for row in memory.get("cells", {}).get(gpu_type, ())]


def cells_memory(cells: Mapping[str, Iterable[Cell]]) -> dict[str, Any]:
    """Return the memory that contains these cells, as plain JSON."""
    return {"cells": {name: [list(cell) for cell in cells[name]] for name in sorted(cells)}}
