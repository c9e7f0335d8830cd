"""An operator's changes to quotas: planned as periods, then saved or undone in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from evenshare_core.domain.entitlements import Mode
from evenshare_core.units import COUNT_MAX
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, FieldErrors, invalid
from tenants.input.readers import ENDS_FIRST
from tenants.language import gettext_noop, number, plural
from tenants.models import AuditRecord, Budget, Quota, QuotaChangeRequest
from tenants.operator_transaction import operation
from tenants.periods import Key, OverlapError, Period, QuotaTerms, find_dilutions, set_periods
from tenants.selectors.quota_records import (
    dilutions_to_plain,
    periods_from_plain,
    periods_to_plain,
)

SAVED, UNDONE = "quota.saved", "quota.undone"
PAST = gettext_noop("This is in the past: past quotas cannot be changed.")
GPUS_MAX = COUNT_MAX


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """New terms for one tenant and GPU type; terms None ends the quota."""

    tenant: int
    gpu_type: int
    terms: QuotaTerms | None
    until: datetime | None

    @property
    def key(self) -> Key:
        return self.tenant, self.gpu_type


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The periods of each changed quota, before and after, from `since` on."""

    pool: int
    since: datetime
    before: Mapping[Key, tuple[Period, ...]]
    after: Mapping[Key, tuple[Period, ...]]

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(sorted(self.after))


def quota_periods(pool_id: int, since: datetime) -> dict[Key, tuple[Period, ...]]:
    """Return a pool's quotas that apply at `since` or later, in time order."""
    periods: dict[Key, list[Period]] = {}
    for row in _rows(pool_id, since):
        periods.setdefault((row.tenant_id, row.gpu_type_id), []).append(_period(row))
    return {key: tuple(rows) for key, rows in periods.items()}


def basis_of(pool_id: int, now: datetime) -> str:
    """Return a digest of a pool's present and planned quotas, to detect changes."""
    planned = repr(sorted(quota_periods(pool_id, now).items()))
    return sha256(planned.encode()).hexdigest()[:16]


def plan_quotas(
    pool_id: int, edits: Iterable[QuotaEdit], *, since: datetime, now: datetime
) -> QuotaPlan:
    """Return the pool's quotas after `edits` from `since` on (pool time, not in the past).

    Raises:
        InvalidInputError: by field, such as `quotas[2].until` of the third edit, or on `since`.
    """
    if since < now:
        raise invalid("since", _(PAST))
    present = quota_periods(pool_id, now)
    errors = FieldErrors()
    before: dict[Key, tuple[Period, ...]] = {}
    after: dict[Key, tuple[Period, ...]] = {}
    for index, edit in enumerate(edits):
        wrong = _edit_errors(edit, since)
        old = present.get(edit.key, ())
        if not wrong:
            try:
                new = set_periods(old, since=since, until=edit.until, terms=edit.terms)
            except OverlapError as error:
                wrong.add("until", _overlap_text(error.period))
            else:
                if new != old:
                    before[edit.key], after[edit.key] = old, new
        errors.extend(one.inside(f"quotas[{index}]") for one in wrong)
    errors.raise_any()
    return QuotaPlan(pool_id, since, before, after)


def _overlap_text(period: Period) -> str:
    text = _("A period with {gpus} begins {begins}: end this one by then.")
    return text.format(
        gpus=plural(period.terms.gpus, "GPU"), begins=f"{period.since:%Y-%m-%d %H:%M} UTC"
    )


def _edit_errors(edit: QuotaEdit, since: datetime) -> FieldErrors:
    errors = FieldErrors()
    if edit.until is not None and edit.until <= since:
        errors.add("until", _(ENDS_FIRST))
    terms = edit.terms
    if terms is None:
        return errors
    if not 0 <= terms.gpus <= GPUS_MAX:
        errors.add(
            "gpus",
            _("Enter 0 to {most}, or leave the field empty for no quota.").format(
                most=number(GPUS_MAX)
            ),
        )
    if terms.mode not in [mode.value for mode in Mode]:
        errors.add("mode", _("Choose one of the modes."))
    for name, limit in (("borrow_limit", terms.borrow_limit), ("lend_limit", terms.lend_limit)):
        if limit is not None and not 0 <= limit <= GPUS_MAX:
            errors.add(
                name,
                _("Enter 0 to {most}, or leave the field empty for no limit.").format(
                    most=number(GPUS_MAX)
                ),
            )
    return errors


def save_quotas(
    *,
    actor: Actor,
    pool_id: int,
    pool_name: str,
    book: str,
    edits: Sequence[QuotaEdit],
    since: datetime,
    now: datetime,
    basis: str,
    next_round: int,
    capacity: Mapping[int, int],
    reason: str = "",
) -> AuditRecord | None:
    """Save edits from `since` on; return their record, or None if they change nothing.

    `capacity` is the pool's GPUs by type. Quotas above it are saved, and the record lists the
    diluted tenants (`dilutes`).

    `basis` is the state that the editor saw (`basis_of`): a change since then is a conflict.
    `next_round` is stored in the record: until that round, the change can be undone.

    Raises:
        InvalidInputError: as `plan_quotas`, or a conflict on `basis`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        if basis_of(pool_id, now) != basis:
            message = _("Another user changed these quotas meanwhile: check them again.")
            raise invalid("basis", message, code=CONFLICT)
        plan = plan_quotas(pool_id, edits, since=since, now=now)
        if not plan.after:
            return None
        return write_plan(
            plan,
            actor=actor,
            pool_name=pool_name,
            book=book,
            now=now,
            next_round=next_round,
            capacity=capacity,
            reason=reason,
        )


def plan_dilutions(plan: QuotaPlan, now: datetime, capacity: Mapping[int, int]) -> list[Any]:
    """Return the tenants that an unwritten plan dilutes, in the form of `dilutions_to_plain`."""
    present = quota_periods(plan.pool, now)
    later = {**present, **plan.after}
    return dilutions_to_plain(find_dilutions(present, later, capacity, plan.since))


def write_plan(
    plan: QuotaPlan,
    *,
    actor: Actor,
    pool_name: str,
    book: str,
    now: datetime,
    next_round: int,
    capacity: Mapping[int, int],
    reason: str,
) -> AuditRecord:
    """Write a plan with its record, inside the caller's transaction.

    Raises:
        InvalidInputError: a conflict on `basis`: another save came first.
    """
    _make_budgets(plan, book)
    dilutes = plan_dilutions(plan, now, capacity)
    try:
        # If another save runs at the same time, the constraint on overlaps decides which one
        # succeeds.
        with transaction.atomic():
            for key in plan.keys:
                _write_periods(plan.pool, key, plan.before[key], plan.after[key])
    except IntegrityError as error:
        message = _("Another user changed these quotas: check them again.")
        raise invalid("basis", message, code=CONFLICT) from error
    return write_audit(
        actor,
        SAVED,
        f"pool {pool_name}",
        before={"periods": periods_to_plain(plan.before)},
        after={
            "periods": periods_to_plain(plan.after),
            "since": plan.since.isoformat(),
            "planned_at": now.isoformat(),
            "next_round": next_round,
            **({"dilutes": dilutes} if dilutes else {}),
        },
        reason=reason,
    )


def undo_quotas(*, actor: Actor, pool_id: int, record_id: int, next_round: int) -> AuditRecord:
    """Undo a saved change, if no round has passed and the quotas were not changed again.

    A request that the change approved is open again.

    Raises:
        InvalidInputError: on `record`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        rows = AuditRecord.objects.filter(pk=record_id, action=SAVED)
        record = rows.first()
        if record is None or record.after["next_round"] != next_round:
            message = _("A round has already used it: change the quota again instead.")
            raise invalid("record", message)
        planned_at = datetime.fromisoformat(record.after["planned_at"])
        before = periods_from_plain(record.before["periods"])
        after = periods_from_plain(record.after["periods"])
        for key in sorted(set(before) | set(after)):
            expected = after.get(key, ())
            if _still(pool_id, key, planned_at, expected) != set(expected):
                raise invalid("record", _("Another user changed it since: nothing was undone."))
            _write_periods(pool_id, key, expected, before.get(key, ()))
        _reopen_request(actor, record)
        return write_audit(
            actor,
            UNDONE,
            record.subject,
            before={"periods": record.after["periods"]},
            after={"periods": record.before["periods"], "undoes": record.pk},
        )


def _reopen_request(actor: Actor, record: AuditRecord) -> None:
    request = QuotaChangeRequest.objects.filter(record=record).first()
    if request is None:
        return
    request.state, request.answer, request.approved_gpus = request.State.OPEN, "", None
    request.decided_by = request.decided_at = request.record = None
    try:
        with transaction.atomic():
            request.save()
    except IntegrityError as error:
        message = _("The tenant has requested this quota again: decide that request first.")
        raise invalid("record", message) from error
    write_audit(actor, "quota.reopened", record.subject, after={"request": str(request.uid)})


def _still(pool_id: int, key: Key, planned_at: datetime, expected: Sequence[Period]) -> set[Period]:
    """Return the present periods, except those that ended before the change."""
    rows = Quota.objects.filter(pool_id=pool_id, tenant_id=key[0], gpu_type_id=key[1])
    rows = rows.filter(Q(valid_until__isnull=True) | Q(valid_until__gte=planned_at))
    present = {_period(row) for row in rows}
    return {period for period in present if period in expected or period.until != planned_at}


def _write_periods(
    pool_id: int, key: Key, before: Sequence[Period], after: Sequence[Period]
) -> None:
    """Replace periods.

    Deletions come first, then changes of ends, then insertions, so that none overlap.
    """
    rows = Quota.objects.filter(pool_id=pool_id, tenant_id=key[0], gpu_type_id=key[1])
    ends = {(period.since, period.terms): period.until for period in after}
    stay = [period for period in before if (period.since, period.terms) in ends]
    rows.filter(valid_from__in=[period.since for period in before if period not in stay]).delete()
    for period in stay:
        until = ends.pop((period.since, period.terms))
        if until != period.until:
            rows.filter(valid_from=period.since).update(valid_until=until)
    Quota.objects.bulk_create(
        Quota(
            tenant_id=key[0],
            pool_id=pool_id,
            gpu_type_id=key[1],
            gpus=terms.gpus,
            valid_from=since,
            valid_until=until,
            mode=terms.mode,
            borrow_limit=terms.borrow_limit,
            lend_limit=terms.lend_limit,
        )
        for (since, terms), until in ends.items()
    )


def _make_budgets(plan: QuotaPlan, book: str) -> None:
    """Create the budgets of tenants that get their first quota of the book."""
    for tenant_id in {key[0] for key in plan.keys}:
        Budget.objects.get_or_create(tenant_id=tenant_id, book=book)


def _rows(pool_id: int, since: datetime) -> Iterable[Quota]:
    rows = Quota.objects.filter(pool_id=pool_id).order_by("tenant", "gpu_type", "valid_from")
    return rows.filter(Q(valid_until__isnull=True) | Q(valid_until__gt=since))


def _period(row: Quota) -> Period:
    terms = QuotaTerms(row.gpus, row.mode, row.borrow_limit, row.lend_limit)
    return Period(terms, row.valid_from, row.valid_until)
