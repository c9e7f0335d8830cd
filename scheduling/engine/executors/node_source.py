"""What an engine with nodes of its own says of them, and may be asked to do: an optional part."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, cast

from scheduling.engine.executors.base import Executor


class EngineNodeState(StrEnum):
    """Whether the engine would start something on a node."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True)
class EngineNode:
    """A node as the engine tells of it.

    `state`, with its `reason` and since when, is what the engine's own people and daemons did: a
    drain that came from here is `drained_here` instead, and stands beside it. `unfit` says why
    it can be no node of a pool: no GPUs, several types, a type without a name here; then `gpu_type`
    is empty.
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
    """The part of an executor whose traits say `has_nodes`. Calls may be repeated, or come late.

    All raise ExecutorError where the engine cannot be asked, or refuses.
    """

    def cluster(self, pool_id: int) -> str:
        """Return what tells a pool's engine from all others: pools of one have nodes in common."""

    def nodes(self, pool_id: int) -> list[EngineNode]:
        """Return all nodes that the engine has for a pool, by name; there is at least one."""

    def drain(self, pool_id: int, reasons: Mapping[str, str]) -> None:
        """Have the engine start nothing more on nodes; `reasons` by name."""

    def resume(self, pool_id: int, names: Collection[str]) -> None:
        """Undo `drain`."""


def node_source(executor: Executor) -> NodeSource | None:
    """Return what asks an executor's engine for its nodes; None: it has none of its own."""
    return cast("NodeSource", executor) if executor.traits.has_nodes else None
