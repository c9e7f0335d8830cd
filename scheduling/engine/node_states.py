"""Node states both ways: what the engine says of nodes is shown here, drains from here go there.

Level-triggered: each look compares what operators said with what the engine tells, and asks for
what is missing, so a lost call, a crash or somebody's hand in the engine heals with the next look.
A drain of the engine's own people is never undone, and one from here never taken for theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from scheduling.engine.clock import wall_now
from scheduling.engine.executors import Executor, ExecutorError
from scheduling.engine.executors.node_source import (
    EngineNode,
    EngineNodeState,
    NodeSource,
    node_source,
)
from scheduling.engine.fence import lock_fence
from scheduling.models import ExecutorHealth, Node, Pool, PoolFence
from scheduling.selectors.pools.nodes import drain_reasons
from tenants.scopes import engine_scope

# Rounds may come every second; nodes are asked for this seldom (wall time).
LOOK_S = 5.0
_WRITTEN = ("engine_state", "engine_reason", "engine_since", "engine_trouble")
_TEXT_MAX = 200

log = structlog.get_logger(__name__)


def follow_nodes(pool: Pool, executor: Executor, token: int) -> None:
    """Look at the engine's nodes, if it has any of its own and the last look is a while ago.

    An engine that cannot be asked changes nothing and stops no round; what it refuses is noted
    with the nodes.

    Raises:
        FencedError: the pool was taken by another holder since.
    """
    source = node_source(executor)
    if source is None:
        return
    asked = PoolFence.objects.values_list("nodes_asked_at", flat=True).get(pool_id=pool.pk)
    now = wall_now()
    if asked is not None and timedelta(0) <= now - asked < timedelta(seconds=LOOK_S):
        return
    if ExecutorHealth.objects.filter(pool=pool, open_until__isnull=False).exists():
        # Its breaker is open: the next listing that succeeds closes it.
        return
    try:
        there = {node.name: node for node in source.nodes(pool.pk)}
    except ExecutorError as error:
        log.warning("executor.nodes_silent", pool=pool.name, error=str(error))
        _write(pool, token, now, [])
        return
    rows = list(Node.objects.filter(pool=pool).select_related("pool").order_by("id"))
    troubles = _carry_out(pool, source, rows, there)
    title = executor.traits.title or "its engine"
    seen = [_EngineWord.of(row, there.get(row.name), troubles, now, title) for row in rows]
    _write(pool, token, now, seen)


def _carry_out(
    pool: Pool, source: NodeSource, rows: Sequence[Node], there: Mapping[str, EngineNode]
) -> dict[str, str]:
    """Have the engine do what operators said; return what it refuses, by node."""
    drains, resumes = [], []
    for row in rows:
        node = there.get(row.name)
        if node is None:
            continue
        # One that is drained or down already starts nothing. Its reason is the engine's: by that it
        # knows whether the node may come back by itself.
        is_open = node.state == EngineNodeState.UP and not node.drained_here
        if row.state == Node.State.DRAINED and is_open:
            drains.append(row)
        elif row.state == Node.State.UP and node.drained_here:
            resumes.append(row)
    refused: dict[str, str] = {}
    if drains:
        said = drain_reasons(drains)
        reasons = {row.name: said.get(row.audit_subject) or "drained" for row in drains}
        try:
            source.drain(pool.pk, reasons)
        except ExecutorError as error:
            refused |= dict.fromkeys(reasons, f"not drained there: {error}"[:_TEXT_MAX])
    if resumes:
        names = [row.name for row in resumes]
        try:
            source.resume(pool.pk, names)
        except ExecutorError as error:
            refused |= dict.fromkeys(names, f"not resumed there: {error}"[:_TEXT_MAX])
    return refused


@dataclass(frozen=True)
class _EngineWord:
    """A node's row, and what its columns are to be."""

    row: Node
    state: str
    reason: str
    since: datetime | None
    trouble: str

    @classmethod
    def of(
        cls, row: Node, node: EngineNode | None, troubles: Mapping[str, str], now: datetime,
        title: str,
    ) -> _EngineWord:  # fmt: skip # rows of what belongs together
        trouble = troubles.get(row.name, "")
        if node is None:
            node = EngineNode(row.name, state=EngineNodeState.DOWN, reason="it has no such node")
        if trouble and node.state == EngineNodeState.UP and row.state == Node.State.UP:
            # What was to be resumed would keep its leases waiting.
            node = replace(node, state=EngineNodeState.DRAINED, reason="the drain from here stands")
        if node.state == EngineNodeState.UP:
            return cls(row, node.state.value, "", None, trouble)
        is_known = row.engine_state == node.state.value
        since = node.since or (row.engine_since if is_known else None) or now
        reason = f"by {title}" + (f": {node.reason}" if node.reason else "")
        return cls(row, node.state.value, reason[:_TEXT_MAX], since, trouble)

    @property
    def columns(self) -> tuple[object, ...]:
        return self.state, self.reason, self.since, self.trouble

    @property
    def is_new(self) -> bool:
        return tuple(getattr(self.row, name) for name in _WRITTEN) != self.columns


def _write(pool: Pool, token: int, now: datetime, seen: Sequence[_EngineWord]) -> None:
    """Record a look at our token, and what is new. Only the engine's own columns are written."""
    fresh = [one for one in seen if one.is_new]
    _tell(pool, fresh)
    for one in fresh:
        for name, value in zip(_WRITTEN, one.columns, strict=True):
            setattr(one.row, name, value)
    with engine_scope(pool.pk):
        fence = lock_fence(pool.pk, token)
        fence.nodes_asked_at = now
        fence.save(update_fields=["nodes_asked_at"])
        if fresh:
            Node.objects.bulk_update([one.row for one in fresh], _WRITTEN)


def _tell(pool: Pool, fresh: Sequence[_EngineWord]) -> None:
    for one in fresh:
        if one.row.engine_state != one.state:
            log.info(
                "node.engine_state",
                pool=pool.name,
                node=one.row.name,
                state=one.state,
                reason=one.reason,
            )
    # Once, however often it is tried again, and however many nodes it is about.
    troubles: dict[str, list[str]] = {}
    for one in fresh:
        if one.trouble and one.row.engine_trouble != one.trouble:
            troubles.setdefault(one.trouble, []).append(one.row.name)
    for trouble, names in troubles.items():
        log.warning("executor.nodes_refused", pool=pool.name, nodes=names, error=trouble)
