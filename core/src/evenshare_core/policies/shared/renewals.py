"""A test whether a round renews all due leases, because no waiting job could use their GPUs.

After a round without grants, the next round can give only GPUs of due leases. If the smallest
waiting gang is larger than any node's free GPUs plus those of its due leases, the round again
grants nothing. This holds for any order of jobs.
"""

from collections.abc import Iterable, Mapping

from evenshare_core.policies.shared.session import KeptRound

NONE = 1 << 60  # the value if no gang waits: more GPUs than any pool has
NO_GANG = (NONE, NONE)
Least = tuple[int, int]  # the smallest gang that fits on one node, and the smallest larger gang


def least_of(gangs: Iterable[int], size: int) -> Least:
    """Return the smallest gang of at most `size` GPUs, and the smallest larger gang.

    `size`: the GPUs of the largest node.
    """
    small = large = NONE
    for gpus in gangs:
        if gpus <= size:
            small = min(small, gpus)
        else:
            large = min(large, gpus)
    return small, large


def have_no_use(least: Mapping[str, Least], view: KeptRound) -> bool:
    """Return whether no waiting gang would fit on the GPUs of due leases and the free GPUs.

    `least`: the smallest waiting gangs, by type.
    """
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
