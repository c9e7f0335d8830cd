"""Whether leases that come due are all renewed, because nobody who waits could use their GPUs.

After a round that gave nothing, the next one has GPUs to give only where leases are due. Where the
least gang that waits is larger than any node's free GPUs with those, nothing is given again,
whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evenshare_core.policies.shared.session import KeptRound

NONE = 1 << 60  # more GPUs than any pool has: no such gang waits
NO_GANG = (NONE, NONE)
Least = tuple[int, int]  # the least gang that must have one node, and the least of the others


def least_of(gangs: Iterable[int], size: int) -> Least:
    """The least gangs; `size`: of the largest node, to which a gang goes that it has room for."""
    small = large = NONE
    for gpus in gangs:
        if gpus <= size:
            small = min(small, gpus)
        else:
            large = min(large, gpus)
    return small, large


def have_no_use(least: Mapping[str, Least], view: KeptRound) -> bool:
    """Whether no gang would fit where leases are due; `least`: of all that wait, by GPU type."""
    on_node: dict[tuple[str, int], int] = {}
    in_all: dict[str, int] = {}
    for lease in view.due:
        gpu_type = lease.gpu_type
        for node, count in lease.placement:
            on_node[gpu_type, node] = on_node.get((gpu_type, node), 0) + count
            in_all[gpu_type] = in_all.get(gpu_type, 0) + count
    free = view.free
    return all(
        gpu_type in free and free[gpu_type].total + gpus < least.get(gpu_type, NO_GANG)[1]
        for gpu_type, gpus in in_all.items()
    ) and all(
        free[gpu_type].free[node] + gpus < least.get(gpu_type, NO_GANG)[0]
        for (gpu_type, node), gpus in on_node.items()
    )
