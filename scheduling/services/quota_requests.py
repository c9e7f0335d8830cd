"""Requests for quota: a tenant's manager asks or withdraws, an operator approves or declines."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from evenshare_core.domain.entitlements import Mode
from scheduling.engine.clock import PoolNow, read_clock, wall_now
from scheduling.engine.snapshots import next_number
from scheduling.models import MessageKind, Pool
from scheduling.outbox.gather import announce
from scheduling.requests.quota_requests import QuotaAskRequest
from scheduling.selectors.pools.capacity import gpus_by_type, type_capacities
from scheduling.services.job_requests import NO_TYPE
from scheduling.services.quota_impact import quota_impact
from scheduling.services.round_impact import ImpactRow
from scheduling.services.sharing import managed
from tenants.audit import Actor, write_audit
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import CONFLICT, InvalidInputError, invalid
from tenants.models import AuditRecord, QuotaChangeRequest, Tenant
from tenants.operator_transaction import operation
from tenants.periods import Key, Period, QuotaTerms, period_at
from tenants.permissions import Action
from tenants.scopes import site_reading, site_scope
from tenants.services.quotas import QuotaEdit, plan_quotas, quota_periods, save_quotas

State = QuotaChangeRequest.State


@dataclass(frozen=True, slots=True)
class OwnImpact:
    """A tenant's own part of the estimate of a quota: its rows, none if there is no estimate."""

    number: int
    rows: tuple[ImpactRow[int], ...]
    is_estimated: bool


def ask_quota(
    *,
    actor: Actor,
    tenant: Tenant,
    pool_id: int,
    request: QuotaAskRequest,
    key: str | None = None,
) -> Made[QuotaChangeRequest]:
    """Request a quota for a tenant; nothing changes until an operator approves it.

    Raises:
        InvalidInputError: by field; or a request for the same quota is open.
        PermissionDenied: the actor does not manage the tenant (any more).
        tenants.idempotency.MismatchError, tenants.idempotency.InFlightError: see `begin_reply`.
    """
    body = [pool_id, request.gpu_type, request.gpus, str(request.until), request.reason]
    keyed = KeyedRequest.of(tenant, actor.user, "quota-requests", key, body)
    with managed(tenant, actor, Action.ASK_QUOTA):
        uid = uuid4()
        before = begin_reply(keyed, [str(uid)]) if keyed else None
        if before is not None:
            known = QuotaChangeRequest.objects.get(uid=before[0], tenant=tenant)
            return Made(known, is_replay=True)
        pool = Pool.objects.get(pk=pool_id)
        with site_reading():
            edit, present = _draft(tenant.pk, pool_id, request, read_clock(pool_id))
        made = QuotaChangeRequest(
            uid=uid,
            tenant=tenant,
            pool=pool,
            gpu_type_id=edit.gpu_type,
            gpus=request.gpus,
            quota_gpus=present.terms.gpus if present else 0,
            until=request.until,
            reason=request.reason,
            asked_by=actor.user,
        )
        try:
            with transaction.atomic():
                made.save(force_insert=True)
        except IntegrityError as error:
            reason = _("A request for this quota is open: withdraw it, or wait for its decision.")
            raise invalid("gpu_type", reason, code=CONFLICT) from error
        made.refresh_from_db(fields=["asked_at"])
        _record(actor, made, "quota.asked", request.reason)
    return Made(made, is_replay=False)


def preview_quota(
    *, tenant: Tenant, pool_id: int, request: QuotaAskRequest, now: PoolNow
) -> OwnImpact:
    """Return the tenant's own part of the next round with the requested quota; writes nothing.

    Raises:
        InvalidInputError: by field, as in `ask_quota`.
        RuntimeError: it is called inside a transaction.
    """
    with site_scope():
        edit, _present = _draft(tenant.pk, pool_id, request, now)
    impact = quota_impact(pool_id=pool_id, edits=[edit], since=now.pool_at, now=now)
    # The estimate has rows of all tenants, and its warnings and errors may name them.
    rows = tuple(row for row in impact.rows if row.tenant == tenant.pk)
    return OwnImpact(impact.number, rows, not impact.error)


def withdraw_quota(*, actor: Actor, tenant: Tenant, uid: UUID) -> QuotaChangeRequest | None:
    """Withdraw a tenant's request; return None if the tenant has no request with this id.

    A request that was already withdrawn is returned unchanged.

    Raises:
        InvalidInputError: it was already approved or declined.
        PermissionDenied: the actor does not manage the tenant (any more).
    """
    with managed(tenant, actor, Action.ASK_QUOTA):
        request = _locked(uid, tenant=tenant)
        if request is None or request.state == State.WITHDRAWN:
            return request
        _require_open(request)
        return _decided(actor, request, State.WITHDRAWN, "")


def quota_edit(request: QuotaChangeRequest, gpus: int, now: datetime) -> QuotaEdit:
    """Return the change of quotas by which a request is approved, from `now` on (pool time).

    Mode and limits stay those of the present quota.
    """
    key = request.tenant_id, request.gpu_type_id
    return _edit(key, _present(request.pool_id, key, now), gpus, request.until)


def approve_quota(
    *, actor: Actor, uid: UUID, basis: str, gpus: int | None = None, answer: str = ""
) -> QuotaChangeRequest:
    """Approve a request and set its quota, so that the next round uses it.

    `gpus`: the quota, by default as requested. `basis`: the pool's quotas that the operator saw
    (`tenants.services.quotas.basis_of`).

    Raises:
        InvalidInputError: no such request, it is decided already, or as `save_quotas`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        request = lock_open_request(uid)
        pool, now = request.pool, read_clock(request.pool_id).pool_at
        approved = request.gpus if gpus is None else gpus
        if request.until is not None and request.until <= now:
            reason = _("The requested end has passed: decline the request.")
            raise invalid("until", reason, code=CONFLICT)
        with _fields_of_request():
            record = save_quotas(
                actor=actor,
                pool_id=pool.pk,
                pool_name=pool.name,
                book=pool.book,
                edits=[quota_edit(request, approved, now)],
                since=now,
                now=now,
                basis=basis,
                next_round=next_number(pool.pk),
                capacity=gpus_by_type(pool.pk),
                reason=request.reason,
            )
        request.approved_gpus, request.record = approved, record
        return _decided(actor, request, State.APPROVED, answer)


def decline_quota(*, actor: Actor, uid: UUID, answer: str) -> QuotaChangeRequest:
    """Decline a request, with a reason for the tenant.

    Raises:
        InvalidInputError: no such request, or it is decided already.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        request = lock_open_request(uid)
        return _decided(actor, request, State.DECLINED, answer)


def lock_open_request(uid: UUID) -> QuotaChangeRequest:
    """Lock an open request and return it.

    The pool is locked first, as by every edit over REST, so that two decisions cannot deadlock.

    Raises:
        InvalidInputError: no such request, or it is decided already.
    """
    pools = QuotaChangeRequest.objects.filter(uid=uid).values("pool")
    Pool.objects.select_for_update(no_key=True).filter(pk__in=pools).first()
    request = _locked(uid)
    if request is None:
        raise invalid("uid", _("is not a request for quota"), code="unknown")
    _require_open(request)
    return request


def _require_open(request: QuotaChangeRequest) -> None:
    if request.state == State.OPEN:
        return
    texts = {
        State.APPROVED: _("{name} already approved this request."),
        State.DECLINED: _("{name} already declined this request."),
        State.WITHDRAWN: _("{name} already withdrew this request."),
    }
    by = request.decided_by.get_username() if request.decided_by else ""
    text = texts[State(request.state)].format(name=by)
    raise invalid("uid", text, code=CONFLICT)


def _locked(uid: UUID, **of: Any) -> QuotaChangeRequest | None:
    rows = QuotaChangeRequest.objects.select_for_update(of=("self",))
    return (
        rows.select_related("pool", "tenant", "gpu_type", "decided_by")
        .filter(uid=uid, **of)
        .first()
    )


def _draft(
    tenant_id: int, pool_id: int, request: QuotaAskRequest, now: PoolNow
) -> tuple[QuotaEdit, Period | None]:
    """Return the requested change and the present quota; check that it can be approved now.

    Raises:
        InvalidInputError: by field.
    """
    types = {one.name: one.id for one in type_capacities(pool_id)}
    if request.gpu_type not in types:
        hint = _("GPU types of the pool: {names}.").format(names=", ".join(types))
        raise invalid("gpu_type", _(NO_TYPE), hint)
    key = tenant_id, types[request.gpu_type]
    present = _present(pool_id, key, now.pool_at)
    edit = _edit(key, present, request.gpus, request.until)
    with _fields_of_request():
        plan = plan_quotas(pool_id, [edit], since=now.pool_at, now=now.pool_at)
    if not plan.keys:
        raise invalid(
            "gpus", _("is the quota already"), _("Request another number of GPUs, or another end.")
        )
    return edit, present


def _present(pool_id: int, key: Key, now: datetime) -> Period | None:
    return period_at(quota_periods(pool_id, now).get(key, ()), now)


def _edit(key: Key, present: Period | None, gpus: int, until: datetime | None) -> QuotaEdit:
    if present is None:
        terms = QuotaTerms(gpus, Mode.LEND_AND_BORROW.value)
    else:
        terms = replace(present.terms, gpus=gpus)
    return QuotaEdit(*key, terms, until)


@contextmanager
def _fields_of_request() -> Iterator[None]:
    """Rename the fields of a draft's only quota to those of the request."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(
            [replace(one, field=one.field.removeprefix("quotas[0].")) for one in error.errors]
        ) from error


def _decided(
    actor: Actor, request: QuotaChangeRequest, state: State, answer: str
) -> QuotaChangeRequest:
    request.state, request.answer, request.decided_by = state, answer, actor.user
    request.decided_at = Now()
    request.save()
    request.refresh_from_db(fields=["decided_at"])
    record = _record(actor, request, f"quota.{state.value}", answer)
    if state != State.WITHDRAWN:
        _announce(request, record)
    return request


def _record(actor: Actor, request: QuotaChangeRequest, action: str, reason: str) -> AuditRecord:
    subject = f"pool {request.pool.name}, {request.tenant.slug}, {request.gpu_type.name}"
    after = {
        "gpus": _decided_gpus(request),
        "until": request.until.isoformat() if request.until else None,
        "request": str(request.uid),
    }
    return write_audit(actor, action, subject[:140], after=after, reason=reason)


def _decided_gpus(request: QuotaChangeRequest) -> int:
    """Return the approved number, else the requested one."""
    return request.gpus if request.approved_gpus is None else request.approved_gpus


def _announce(request: QuotaChangeRequest, record: AuditRecord) -> None:
    """Send the decision to those members who subscribed to decisions."""
    announce(
        MessageKind.QUOTA_DECIDED,
        tenant_id=request.tenant_id,
        pool_id=request.pool_id,
        event=f"quota:{record.pk}",
        data={
            "tenant": request.tenant.slug,
            "pool": request.pool.name,
            "gpu_type": request.gpu_type.name,
            "gpus": _decided_gpus(request),
            "state": request.state,
            "answer": request.answer,
        },
        at=read_clock(request.pool_id).pool_at,
        now=wall_now(),
    )
