"""Nodes of a pool as a policy sees them."""

from __future__ import annotations

from evenshare_core.domain.values import Value


class Node(Value, frozen=True, array_like=True):
    """One server with GPUs of one type.

    `gpus` is what may be scheduled now: 0 for a node that is drained or lost.
    """

    id: int
    gpu_type: str
    gpus: int


# Which GPUs a job holds: (node id, GPUs there), sorted by node id, every count > 0.
Placement = tuple[tuple[int, int], ...]


def placement_gpus(placement: Placement) -> int:
    """Return the GPUs of a placement over all its nodes."""
    return sum(gpus for _, gpus in placement)
