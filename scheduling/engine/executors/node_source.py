"""The optional part of an executor whose engine knows nodes: it reads and drains these nodes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, cast

from scheduling.engine.executors.base import Executor


class EngineNodeState(StrEnum):
    """The engine's state of a node: it starts programs only on nodes that are up."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True)
class EngineNode:
    """A node as the engine reports it.

    `state`, with its `reason` and since when, was set by the engine's own administrators and
    daemons. A drain that this portal requested is in `drained_here`, whatever `state` is. `unfit`:
    why no pool can use the node. It has no GPUs, several GPU types, or a type without a name in the
    portal. `gpu_type` is then empty.
    """

    name: str
    gpu_type: str = ""
    gpus: int = 0
    cpus: int = 0
    memory_mb: int = 0
    state: EngineNodeState = EngineNodeState.UP
    reason: str = ""
    since: datetime | None = None
    drained_here: bool = False
    unfit: str = ""


class NodeSource(Protocol):
    """The part of an executor whose traits have `has_nodes`. Calls may be repeated, or come late.

    All calls raise ExecutorError if the engine cannot be reached or refuses.
    """

    def cluster(self, pool_id: int) -> str:
        """Return a key that identifies a pool's engine; pools with the same key share nodes."""

    def nodes(self, pool_id: int) -> list[EngineNode]:
        """Return all nodes that the engine has for a pool, by name; never empty."""

    def drain(self, pool_id: int, reasons: Mapping[str, str]) -> None:
        """Make the engine start no more programs on nodes; `reasons` maps node names to reasons."""

    def resume(self, pool_id: int, names: Collection[str]) -> None:
        """Undo `drain`."""


def node_source(executor: Executor) -> NodeSource | None:
    """Return an executor's source of nodes, or None if its engine has no nodes."""
    return cast("NodeSource", executor) if executor.traits.has_nodes else None
