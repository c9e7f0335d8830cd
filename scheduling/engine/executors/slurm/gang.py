"""A gang over several nodes: what its lease's shim reads, and how its nodes are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduling.engine.executors.local_spec import LeaseSpec


def node_groups(one: LeaseSpec) -> list[tuple[int, tuple[str, ...]]]:
    """Return the nodes of a lease by how many GPUs it holds there, most first.

    sbatch gives a job equally many GPUs on each of its nodes; what is uneven becomes a
    heterogeneous job, with a component for each group. Ranks follow this order.
    """
    names: dict[int, list[str]] = {}
    for share in one.shares:
        names.setdefault(len(share.slots), []).append(share.node)
    return [(gpus, tuple(names[gpus])) for gpus in sorted(names, reverse=True)]


def gang_spec(one: LeaseSpec, command: Sequence[str]) -> dict[str, Any]:
    """Return what a shim runs in place of the program: `command`, which has srun start that on
    every node (`shim.gang`)."""
    groups = [{"nodes": len(names), "gpus": gpus} for gpus, names in node_groups(one)]
    return {"argv": list(command), "gang": {"argv": one.spec["argv"], "groups": groups}}
