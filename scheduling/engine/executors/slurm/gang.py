"""A gang over several nodes: its shim's specification, and the groups of its nodes."""

from collections.abc import Sequence
from typing import Any

from scheduling.engine.executors.local_spec import LeaseSpec


def node_groups(one: LeaseSpec) -> list[tuple[int, tuple[str, ...]]]:
    """Return a lease's nodes grouped by the number of GPUs that it holds there, largest first.

    sbatch gives a job the same number of GPUs on each of its nodes. An uneven gang becomes a
    heterogeneous job, with a component for each group. Ranks follow this order.
    """
    names: dict[int, list[str]] = {}
    for share in one.shares:
        names.setdefault(len(share.slots), []).append(share.node)
    return [(gpus, tuple(names[gpus])) for gpus in sorted(names, reverse=True)]


def gang_spec(one: LeaseSpec, command: Sequence[str]) -> dict[str, Any]:
    """Return the part of a shim's specification that replaces the program by `command`.

    The command starts the program on every node through srun (`shim.gang`).
    """
    groups = [{"nodes": len(names), "gpus": gpus} for gpus, names in node_groups(one)]
    return {"argv": list(command), "gang": {"argv": one.spec["argv"], "groups": groups}}
