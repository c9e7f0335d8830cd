"""Synchronise node states: store the engine's in the portal, send portal drains to the engine.

Each check compares the operators' states with the engine's and requests the difference. So the next
check repairs a lost call, a crash or a manual change in the engine. The portal never undoes a drain
by the engine's administrators, and never takes its own drain for one of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from scheduling.engine.clock import wall_now
from scheduling.engine.executors.base import Executor, ExecutorError
from scheduling.engine.executors.node_source import (
    EngineNode,
    EngineNodeState,
    NodeSource,
    node_source,
)
from scheduling.engine.fence import lock_fence
from scheduling.models import ExecutorHealth, Node, Pool, PoolFence
from scheduling.selectors.pools.nodes import drain_reasons
from scheduling.selectors.stored_texts import NOT_DRAINED, NOT_RESUMED
from tenants.scopes import engine_scope

# The minimum wall time between two queries for nodes, since rounds may come every second.
LOOK_S = 5.0
_WRITTEN = ("engine_state", "engine_reason", "engine_since", "engine_trouble")
_TEXT_MAX = 200

log = structlog.get_logger(__name__)


def follow_nodes(pool: Pool, executor: Executor, token: int) -> None:
    """Synchronise node states, if the engine has nodes and the last check is long enough ago.

    If the engine does not answer, nothing changes and the round goes on. Refusals of the engine are
    stored with the nodes.
    """
    source = node_source(executor)
    if source is None:
        return
    asked = PoolFence.objects.values_list("nodes_asked_at", flat=True).get(pool_id=pool.pk)
    now = wall_now()
    if asked is not None and timedelta(0) <= now - asked < timedelta(seconds=LOOK_S):
        return
    if ExecutorHealth.objects.filter(pool=pool, open_until__isnull=False).exists():
        # The executor's breaker is open; the next listing that succeeds closes it.
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
    """Request the operators' states from the engine; return its refusals by node."""
    drains, resumes = [], []
    for row in rows:
        node = there.get(row.name)
        if node is None:
            continue
        # A drained or down node starts nothing anyway. Keep the engine's reason, by which the
        # engine decides whether the node comes back by itself.
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
            refused |= dict.fromkeys(reasons, NOT_DRAINED.format(error=error)[:_TEXT_MAX])
    if resumes:
        names = [row.name for row in resumes]
        try:
            source.resume(pool.pk, names)
        except ExecutorError as error:
            refused |= dict.fromkeys(names, NOT_RESUMED.format(error=error)[:_TEXT_MAX])
    return refused


@dataclass(frozen=True)
class _EngineWord:
    """A node's row, and the new values for its columns."""

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
            node = EngineNode(
                row.name, state=EngineNodeState.DOWN, reason="the engine has no such node"
            )
        if trouble and node.state == EngineNodeState.UP and row.state == Node.State.UP:
            # The engine refused to resume the node, so leases placed there would wait.
            node = replace(
                node, state=EngineNodeState.DRAINED, reason="the drain by the portal remains"
            )
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
    """Store a check, if we still hold the fence; write only the engine's columns."""
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
    # Log a problem once, however often it is retried and however many nodes it affects.
    troubles: dict[str, list[str]] = {}
    for one in fresh:
        if one.trouble and one.row.engine_trouble != one.trouble:
            troubles.setdefault(one.trouble, []).append(one.row.name)
    for trouble, names in troubles.items():
        log.warning("executor.nodes_refused", pool=pool.name, nodes=names, error=trouble)
