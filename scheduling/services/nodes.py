"""An operator's changes to nodes: drain, resume, add, change, remove, and maintenance windows."""

from collections.abc import Collection
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext as _
from msgspec import UNSET

from scheduling.models import GpuType, LeaseSlot, MaintenanceWindow, Node, Pool, PriceSetting
from scheduling.requests.nodes import (
    NO_REASON,
    NO_RESOURCES,
    NO_SUCH_NODES,
    NodeChangeRequest,
    NodeRequest,
    WindowRequest,
)
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, FieldErrors, invalid
from tenants.input.readers import ENDS_FIRST
from tenants.input.requests import (
    given_fields,
    make_request,
    read_fields,
    refuse_unknown,
    request_fields,
)
from tenants.operator_transaction import operation
from tenants.scopes import site_scope


def drain_node(*, actor: Actor, pool: Pool, name: str, reason: str) -> bool:
    """Drain a node, so that it gets no new leases; return whether it was up before.

    Leases on it end at their expiry, and their jobs continue on other nodes. If the node was
    drained already, nothing is recorded, not even the reason.

    Raises:
        InvalidInputError: on `node`; or on `reason` if it is empty.
    """
    if not reason.strip():
        raise invalid("reason", _(NO_REASON), code="required")
    return _state_set(actor, pool, name, state=Node.State.DRAINED, reason=reason)


def resume_node(*, actor: Actor, pool: Pool, name: str, reason: str = "") -> bool:
    """Allow new leases on a node; return whether the node was drained.

    If it was not drained, nothing is recorded.

    Raises:
        InvalidInputError: on `node`.
    """
    return _state_set(actor, pool, name, state=Node.State.UP, reason=reason)


def _state_set(actor: Actor, pool: Pool, name: str, *, state: Node.State, reason: str) -> bool:
    action = "node.resumed" if state == Node.State.UP else Node.DRAIN_ACTION
    with operation(actor):
        node = _locked(pool, name)
        if node.state == state:
            return False
        before, node.state = node.state, state
        node.save(update_fields=["state"])
        write_audit(
            actor,
            action,
            node.audit_subject,
            before={"state": before},
            after={"state": state},
            reason=reason,
        )
    return True


def add_node(*, actor: Actor, pool: Pool, request: NodeRequest) -> Node:
    """Add a node; a GPU type that is new to the pool gets the default price setting.

    Raises:
        InvalidInputError: on `name`: the pool has a node of this name.
    """
    name, gpu_type, gpus = request.name, request.gpu_type, request.gpus
    resources = {"cpus": request.cpus, "memory_mb": request.memory_mb}
    with operation(actor):
        kind = GpuType.objects.get_or_create(name=gpu_type)[0]
        PriceSetting.objects.get_or_create(pool=pool, gpu_type=kind)
        try:
            with transaction.atomic():
                node = Node.objects.create(
                    pool=pool, name=name, gpu_type=kind, gpus=gpus, **resources
                )
        except IntegrityError:
            raise invalid("name", _("The pool has a node of this name.")) from None
        after = {"gpu_type": gpu_type, "gpus": gpus} | _said(resources)
        write_audit(actor, "node.added", node.audit_subject, after=after)
    return node


def change_nodes(
    *, actor: Actor, pool: Pool, names: Collection[str], request: NodeChangeRequest
) -> int:
    """Set the resources of nodes other than GPUs; return the number of nodes that changed.

    Leases on them continue, whatever they need.

    Raises:
        InvalidInputError: on `nodes`: not all belong to the pool; on `cpus`: no resource is given.
    """
    wanted = {
        name: value
        for name, value in (("cpus", request.cpus), ("memory_mb", request.memory_mb))
        if value is not UNSET
    }
    errors = FieldErrors()
    if not wanted:
        errors.add("cpus", _(NO_RESOURCES), code="required")
    changed = 0
    with operation(actor):
        nodes = _locked_nodes(pool, names, errors)
        errors.raise_any()
        for node in nodes:
            before = {name: getattr(node, name) for name in wanted}
            if before == wanted:
                continue
            for name, value in wanted.items():
                setattr(node, name, value)
            node.save(update_fields=list(wanted))
            write_audit(actor, "node.changed", node.audit_subject, before=before, after=wanted)
            changed += 1
    return changed


def _said(resources: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in resources.items() if count}


def remove_node(*, actor: Actor, pool: Pool, name: str) -> None:
    """Remove a drained, empty node from its pool; past leases still refer to it.

    Raises:
        InvalidInputError: on `node`: it is not drained, or leases hold or wait for its GPUs.
    """
    with operation(actor):
        node = _locked(pool, name)
        if node.state == Node.State.UP:
            # A round that is being decided could still grant leases there.
            raise invalid("node", _("Drain it first: it may still get new leases."), code=CONFLICT)
        used = LeaseSlot.objects.filter(Q(holding=True) | Q(planned=True), node=node).count()
        if used:
            message = _("Leases hold {used} of its GPUs: wait until they have ended.").format(
                used=used
            )
            raise invalid("node", message, code=CONFLICT)
        before = {"gpu_type": node.gpu_type.name, "gpus": node.gpus, "state": node.state}
        before |= _said({"cpus": node.cpus, "memory_mb": node.memory_mb})
        subject, node.pool = node.audit_subject, None
        node.save(update_fields=["pool"])
        node.windows.all().delete()
        write_audit(actor, "node.removed", subject, before=before)


def read_window_request(raw: object, pool: Pool) -> WindowRequest:
    """Return the maintenance request in `raw`; report all its errors at once.

    Raises:
        InvalidInputError: fields are wrong, or nodes do not belong to the pool.
    """
    errors = FieldErrors()
    given = given_fields(WindowRequest, raw)
    values = read_fields(WindowRequest, given, errors)
    named = values.get("nodes", ())
    if isinstance(named, tuple) and named:
        with site_scope():
            if Node.objects.filter(pool=pool, name__in=named).count() < len(set(named)):
                errors.add("nodes", _(NO_SUCH_NODES))
    refuse_unknown(WindowRequest, given, errors)
    errors.raise_any(tuple(request_fields(WindowRequest)))
    return make_request(WindowRequest, values)


def add_window(
    *, actor: Actor, pool: Pool, request: WindowRequest, now: datetime
) -> list[MaintenanceWindow]:
    """Plan maintenance of nodes (pool time): no lease that could overlap it starts there.

    Raises:
        InvalidInputError: on `nodes` or `ends_at`.
    """
    starts_at, ends_at, reason = request.starts_at, request.ends_at, request.reason
    with operation(actor):
        errors = FieldErrors()
        nodes = _locked_nodes(pool, request.nodes, errors)
        if ends_at <= now:
            errors.add("ends_at", _("The end is in the past."))
        elif ends_at <= starts_at:
            errors.add("ends_at", _(ENDS_FIRST))
        errors.raise_any()
        there = MaintenanceWindow.objects.filter(
            node__in=nodes, starts_at__lt=ends_at, ends_at__gt=starts_at
        ).select_related("node")
        if there:
            message = _("{node} has maintenance until {ends_at:%m-%d %H:%M} UTC.").format(
                node=there[0].node.name, ends_at=there[0].ends_at
            )
            raise invalid("nodes", message)
        windows = MaintenanceWindow.objects.bulk_create(
            MaintenanceWindow(
                pool=pool,
                node=node,
                starts_at=starts_at,
                ends_at=ends_at,
                reason=reason,
                made_by=actor.user,
            )
            for node in nodes
        )
        after = {
            "nodes": [node.name for node in nodes],
            "starts_at": starts_at.isoformat(),
            "ends_at": ends_at.isoformat(),
        }
        subject = f"pool {pool.name}"
        write_audit(actor, "maintenance.planned", subject, after=after, reason=reason)
    return windows


def end_window(*, actor: Actor, pool: Pool, window_id: int, now: datetime) -> None:
    """Cancel a future window, or end the current one; a past window is not changed.

    Raises:
        InvalidInputError: on `window`.
    """
    with operation(actor):
        rows = MaintenanceWindow.objects.select_for_update(of=("self",)).select_related("node")
        window = rows.filter(pk=window_id, pool=pool, ends_at__gt=now).first()
        if window is None:
            raise invalid("window", _("This maintenance is over, or was cancelled."))
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


def _locked_nodes(pool: Pool, names: Collection[str], errors: FieldErrors) -> list[Node]:
    rows = Node.objects.select_for_update(no_key=True, of=("self",)).select_related("pool")
    nodes = list(rows.filter(pool=pool, name__in=names).order_by("id"))
    if not nodes or len(nodes) < len(set(names)):
        errors.add("nodes", _(NO_SUCH_NODES))
    return nodes


def _locked(pool: Pool, name: str) -> Node:
    rows = Node.objects.select_for_update(no_key=True, of=("self",)).select_related(
        "gpu_type", "pool"
    )
    node = rows.filter(pool=pool, name=name).first()
    if node is None:
        raise invalid("node", _("The pool has no such node."), code=CONFLICT)
    return node
