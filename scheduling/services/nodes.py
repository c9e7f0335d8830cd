"""An operator's changes to nodes: drain, resume, add, remove, and maintenance windows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q

from scheduling.models import GpuType, LeaseSlot, MaintenanceWindow, Node, Pool, PriceSetting
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, FieldErrors, invalid
from tenants.operator_transaction import operation

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TYPE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,29}[a-z0-9])?")
GPUS_MAX = 1024


def drain_node(*, actor: Actor, pool: Pool, name: str, reason: str = "") -> Node:
    """Let no new lease onto a node; those that are there end at their expiry, elsewhere to go on.

    Raises:
        InvalidInputError: on `node`.
        PermissionDenied: the actor may not operate.
    """
    return _state_set(actor, pool, name, state=Node.State.DRAINED, reason=reason)


def resume_node(*, actor: Actor, pool: Pool, name: str, reason: str = "") -> Node:
    """Let leases onto a node again.

    Raises:
        InvalidInputError: on `node`.
        PermissionDenied: the actor may not operate.
    """
    return _state_set(actor, pool, name, state=Node.State.UP, reason=reason)


def _state_set(actor: Actor, pool: Pool, name: str, *, state: Node.State, reason: str) -> Node:
    action = "node.resumed" if state == Node.State.UP else "node.drained"
    with operation(actor):
        node = _locked(pool, name)
        if node.state != state:
            before, node.state = node.state, state
            node.save(update_fields=["state"])
            write_audit(
                actor,
                action,
                f"node {pool.name}/{name}",
                before={"state": before},
                after={"state": state},
                reason=reason,
            )
    return node


def add_node(*, actor: Actor, pool: Pool, name: str, gpu_type: str, gpus: int | None) -> Node:
    """Add a node; a GPU type that is new to the pool gets the default price setting.

    Raises:
        InvalidInputError: on `name`, `gpu_type` or `gpus`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        errors = FieldErrors()
        if not _NAME.fullmatch(name):
            errors.add("name", "Use 1 to 63 small letters, digits and hyphens.")
        if not _TYPE.fullmatch(gpu_type):
            errors.add("gpu_type", "Use 1 to 31 small letters, digits and hyphens.")
        if gpus is None or not 1 <= gpus <= GPUS_MAX:
            errors.add("gpus", f"Write 1 to {GPUS_MAX:,}.")
        if errors or gpus is None:
            raise errors.as_error()
        kind, _ = GpuType.objects.get_or_create(name=gpu_type)
        PriceSetting.objects.get_or_create(pool=pool, gpu_type=kind)
        try:
            with transaction.atomic():
                node = Node.objects.create(pool=pool, name=name, gpu_type=kind, gpus=gpus)
        except IntegrityError:
            raise invalid("name", "The pool has a node of this name.") from None
        after = {"gpu_type": gpu_type, "gpus": gpus}
        write_audit(actor, "node.added", f"node {pool.name}/{name}", after=after)
    return node


def remove_node(*, actor: Actor, pool: Pool, name: str) -> None:
    """Take a drained, empty node out of its pool; past leases go on naming it.

    Raises:
        InvalidInputError: on `node`: it is not drained, or leases hold or wait for its GPUs.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        node = _locked(pool, name)
        if node.state == Node.State.UP:
            # Else a round that is being decided could still grant leases there.
            raise invalid("node", "Drain it first: new leases may still go there.", code=CONFLICT)
        used = LeaseSlot.objects.filter(Q(holding=True) | Q(planned=True), node=node).count()
        if used:
            words = f"Leases hold {used} of its GPUs: wait until they have moved."
            raise invalid("node", words, code=CONFLICT)
        before = {"gpu_type": node.gpu_type.name, "gpus": node.gpus, "state": node.state}
        node.pool = None
        node.save(update_fields=["pool"])
        node.windows.all().delete()
        write_audit(actor, "node.removed", f"node {pool.name}/{name}", before=before)


def add_window(
    *,
    actor: Actor,
    pool: Pool,
    nodes: Sequence[str],
    starts_at: datetime | None,
    ends_at: datetime | None,
    now: datetime,
    reason: str = "",
) -> list[MaintenanceWindow]:
    """Plan maintenance of nodes (pool time): no lease that could overlap it begins there.

    Raises:
        InvalidInputError: on `nodes`, `starts_at` or `ends_at`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        found = list(
            Node.objects.select_for_update(no_key=True)
            .filter(pool=pool, name__in=nodes)
            .order_by("id")
        )
        errors = FieldErrors()
        if not found or len(found) < len(set(nodes)):
            errors.add("nodes", "Choose nodes of this pool.")
        if starts_at is None:
            errors.add("starts_at", "Write an instant, such as 2026-11-21 08:00.")
        if ends_at is None:
            errors.add("ends_at", "Write an instant, such as 2026-11-21 12:00.")
        elif ends_at <= now:
            errors.add("ends_at", "It would be over already.")
        elif starts_at is not None and ends_at <= starts_at:
            errors.add("ends_at", "It must end after it begins.")
        if errors or starts_at is None or ends_at is None:
            raise errors.as_error()
        there = MaintenanceWindow.objects.filter(
            node__in=found, starts_at__lt=ends_at, ends_at__gt=starts_at
        ).select_related("node")
        if there:
            words = f"{there[0].node.name} has maintenance until {there[0].ends_at:%m-%d %H:%M}."
            raise invalid("nodes", words)
        windows = MaintenanceWindow.objects.bulk_create(
            MaintenanceWindow(
                pool=pool,
                node=node,
                starts_at=starts_at,
                ends_at=ends_at,
                reason=reason[:200],
                made_by=actor.user,
            )
            for node in found
        )
        after = {
            "nodes": [node.name for node in found],
            "starts_at": starts_at.isoformat(),
            "ends_at": ends_at.isoformat(),
        }
        subject = f"pool {pool.name}"
        write_audit(actor, "maintenance.planned", subject, after=after, reason=reason)
    return windows


def end_window(*, actor: Actor, pool: Pool, window_id: int, now: datetime) -> None:
    """Call a window off, or end the one that has begun; what is over stays as it was.

    Raises:
        InvalidInputError: on `window`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        rows = MaintenanceWindow.objects.select_for_update(of=("self",)).select_related("node")
        window = rows.filter(pk=window_id, pool=pool, ends_at__gt=now).first()
        if window is None:
            raise invalid("window", "This maintenance is over, or was called off.")
        before = {
            "node": window.node.name,
            "starts_at": window.starts_at.isoformat(),
            "ends_at": window.ends_at.isoformat(),
        }
        after = {}
        if window.starts_at < now:
            window.ends_at = now
            window.save(update_fields=["ends_at"])
            after = {"ends_at": now.isoformat()}
        else:
            window.delete()
        subject = f"pool {pool.name}"
        write_audit(actor, "maintenance.ended", subject, before=before, after=after)


def _locked(pool: Pool, name: str) -> Node:
    rows = Node.objects.select_for_update(no_key=True, of=("self",)).select_related("gpu_type")
    node = rows.filter(pool=pool, name=name).first()
    if node is None:
        raise invalid("node", "The pool has no such node (any more).", code=CONFLICT)
    return node
