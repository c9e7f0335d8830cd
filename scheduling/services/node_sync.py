"""Synchronization of a pool's nodes with those of its engine: nodes are added, changed, drained.

Nodes are never removed, because past leases refer to them. They are never resumed, because an
operator may have drained them.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from django.db.models import Max, Q

from evenshare_core.units import COUNT_MAX, MEMORY_MB_MAX
from scheduling.engine.executors.base import ExecutorError, executor_for
from scheduling.engine.executors.node_source import EngineNode, NodeSource, node_source
from scheduling.models import GpuType, Node, Pool, PriceSetting
from scheduling.requests.nodes import GPU_TYPE_COMPLAINT, GPU_TYPE_NAME, GPUS_MAX
from tenants.audit import Actor, write_audit
from tenants.operator_transaction import operation
from tenants.requests import SMALL_NAME, SMALL_NAME_COMPLAINT
from tenants.scopes import site_scope

NOT_THERE = "The engine no longer has this node."
_COMPARED = ("gpus", "cpus", "memory_mb")


@dataclass(frozen=True)
class SyncedNode:
    """A change of one node.

    `before` and `after` have the fields that differ; for a new node, `after` has all fields.
    """

    kind: str  # added, changed or drained
    name: str
    before: dict[str, object]
    after: dict[str, object]


NodeSync: TypeAlias = tuple[list[SyncedNode], list[tuple[str, str]]]


def engine_nodes(pool: Pool) -> list[EngineNode]:
    """Return the nodes that a pool's engine lists; call it outside of any transaction.

    Raises:
        ExecutorError: the engine does not answer, or lists no nodes.
    """
    source = node_source(executor_for(pool.executor))
    if source is None:
        raise ExecutorError(f"the executor {pool.executor} has no own list of nodes")
    return source.nodes(pool.pk)


def pools_beside(pool: Pool) -> list[Pool]:
    """Return other pools that may have nodes of the same engine; call it outside a transaction.

    Paused pools are left out. A pool whose engine does not answer is included.
    """
    source = node_source(executor_for(pool.executor))
    with site_scope():
        others = Pool.objects.filter(executor=pool.executor, clock__paused=False)
        rows = list(others.exclude(pk=pool.pk).order_by("id"))
    if source is None or not rows:
        return []
    own = _cluster(source, pool)
    same = (own, None)
    return [other for other in rows if own is None or _cluster(source, other) in same]


def _cluster(source: NodeSource, pool: Pool) -> str | None:
    """Return a key that identifies the pool's engine, or None if the engine does not answer."""
    with contextlib.suppress(ExecutorError):
        return source.cluster(pool.pk)
    return None


def plan_node_sync(
    pool: Pool, there: Sequence[EngineNode], beside: Sequence[Pool] = ()
) -> NodeSync:
    """Return what `sync_nodes` would do, without doing it."""
    with site_scope():
        return _plan(pool, there, beside)


def sync_nodes(
    *, actor: Actor, pool: Pool, there: Sequence[EngineNode], beside: Sequence[Pool] = ()
) -> NodeSync:
    """Synchronize a pool's nodes with `there` in one transaction.

    Return the changes by name, and the nodes that are left unchanged with the reasons.
    A GPU type that is new to the pool gets the default price setting. Nodes that belong to the
    pools in `beside` are not added (`pools_beside`). Calling it again with the same nodes changes
    nothing.
    """
    with operation(actor):
        # A concurrent sync could add the same node.
        pools = Pool.objects.filter(pk__in=[pool.pk, *(other.pk for other in beside)])
        list(pools.select_for_update(no_key=True).order_by("id"))
        list(Node.objects.select_for_update(no_key=True).filter(pool=pool).order_by("id"))
        sync = _plan(pool, there, beside)
        for change in sync[0]:
            _carry_out(actor, pool, change)
    return sync


def _carry_out(actor: Actor, pool: Pool, change: SyncedNode) -> None:
    if change.kind == "added":
        kind, _ = GpuType.objects.get_or_create(name=change.after["gpu_type"])
        PriceSetting.objects.get_or_create(pool=pool, gpu_type=kind)
        resources = {name: change.after[name] for name in _COMPARED}
        node = Node.objects.create(pool=pool, name=change.name, gpu_type=kind, **resources)
        write_audit(actor, "node.added", node.audit_subject, after=change.after)
        return
    node = Node.objects.select_related("pool").get(pool=pool, name=change.name)
    for name, value in change.after.items():
        setattr(node, name, value)
    node.save(update_fields=list(change.after))
    drains = change.kind == "drained"
    write_audit(
        actor,
        Node.DRAIN_ACTION if drains else "node.changed",
        node.audit_subject,
        before=change.before,
        after=change.after,
        reason=NOT_THERE if drains else "",
    )


def _plan(pool: Pool, there: Sequence[EngineNode], beside: Sequence[Pool]) -> NodeSync:
    used = Q(leaseslot__holding=True) | Q(leaseslot__planned=True)
    rows = Node.objects.filter(pool=pool).select_related("gpu_type")
    # Slots are numbered and leases may hold the highest ones, so GPUs cannot be removed.
    known = {row.name: row for row in rows.annotate(last=Max("leaseslot__slot", filter=used))}
    others = Node.objects.filter(pool__in=beside).values_list("name", "pool__name")
    held = {name: _held_text(other) for name, other in others}
    changes: list[SyncedNode] = []
    left: list[tuple[str, str]] = []
    for node in sorted(there, key=lambda one: one.name):
        row = known.pop(node.name, None)
        why = _unfit(node) or held.get(node.name)
        if why:
            left.append((node.name, why))
        elif row is None:
            after = {"gpu_type": node.gpu_type, **{name: getattr(node, name) for name in _COMPARED}}
            changes.append(SyncedNode("added", node.name, {}, after))
        elif row.gpu_type.name != node.gpu_type:
            why = f"its GPUs are {row.gpu_type.name} here and {node.gpu_type} there"
            left.append(
                (node.name, f"{why}: drain and remove it here; the next sync adds it again")
            )
        else:
            changes += _differences(row, node, left)
    for name, row in sorted(known.items()):
        if row.state != Node.State.DRAINED:
            before, after = {"state": row.state}, {"state": Node.State.DRAINED.value}
            changes.append(SyncedNode("drained", name, {**before}, {**after}))
    return sorted(changes, key=lambda one: one.name), left


def _differences(row: Node, node: EngineNode, left: list[tuple[str, str]]) -> Iterator[SyncedNode]:
    names = [name for name in _COMPARED if getattr(row, name) != getattr(node, name)]
    held = row.last + 1 if row.last is not None else 0  # type: ignore[attr-defined]  # annotated
    if "gpus" in names and node.gpus < held:
        left.append((row.name, f"leases hold {held} of its GPUs, and it has {node.gpus} there"))
        names.remove("gpus")
    if names:
        before, after = ({name: getattr(one, name) for name in names} for one in (row, node))
        yield SyncedNode("changed", row.name, before, after)


def _held_text(other: str) -> str:
    return (
        f"it is a node of the pool {other}, whose cluster is the same or does not answer. Remove it"
        " there first, or pause that pool: each pool would undo the other's drains"
    )


def _unfit(node: EngineNode) -> str:
    """Return why a node of the engine cannot be added to a pool; empty if it can."""
    if not re.fullmatch(SMALL_NAME, node.name):
        return f"its name cannot be used here. {SMALL_NAME_COMPLAINT}"
    if node.unfit:
        return node.unfit
    if not re.fullmatch(GPU_TYPE_NAME, node.gpu_type):
        return (
            f"the name of its GPU type, {node.gpu_type}, cannot be used here."
            f" {GPU_TYPE_COMPLAINT} gres_types of the options gives it another name"
        )
    if node.gpus > GPUS_MAX or node.cpus > COUNT_MAX or node.memory_mb > MEMORY_MB_MAX:
        return f"it exceeds the limits: {node.gpus} GPUs, {node.cpus} CPUs, {node.memory_mb} MB"
    return ""
