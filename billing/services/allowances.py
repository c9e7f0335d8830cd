"""Posts allowances: one, or all of a reviewed file. Each name is posted once."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.utils.translation import gettext as _

from billing.ledger import allowance_id, post_allowance
from billing.models import Book, Entry, Transfer
from billing.requests import AllowanceRequest
from billing.selectors.clock import book_now
from billing.services.terms import require_book
from evenshare_core.money.fixed_point import to_micro
from tenants.audit import Actor, write_audit
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import CONFLICT, FieldError, InvalidInputError, invalid
from tenants.input.requests import read_request, request_fields
from tenants.language import number
from tenants.models import Tenant
from tenants.operator_transaction import operation
from tenants.permissions import Action
from tenants.scopes import site_scope

LINES_MAX = 1000


@dataclass(frozen=True, slots=True)
class AllowanceLine:
    """A line of a file with its request; `is_posted`: it is already in the books."""

    line: int
    request: AllowanceRequest
    is_posted: bool = False


def give_allowance(
    *, actor: Actor, request: AllowanceRequest, key: str | None = None
) -> Made[Transfer]:
    """Post an allowance, only once for a name or a key.

    Raises:
        InvalidInputError: on `tenant` or `book`, or the name has another amount.
        PermissionDenied: the actor may not manage credit.
        tenants.idempotency.MismatchError, tenants.idempotency.InFlightError: see `begin_reply`.
    """
    with operation(actor, Action.KEEP_CREDIT):
        tenant, book = _named(request)
        transfer = allowance_id(book, tenant.pk, request.name)
        body = [request.tenant, request.book, str(request.amount), request.name, request.reason]
        asked = KeyedRequest.of(tenant, actor.user, "allowances", key, body)
        before = begin_reply(asked, [str(transfer)]) if asked else None
        if before is not None:
            return Made(Transfer.objects.get(pk=before[0]), is_replay=True)
        return _post(actor, request, tenant, book, book_now(book.slug))


def read_allowances(text: str) -> list[AllowanceLine]:
    """Return the lines of a CSV file with the columns tenant, amount, name, reason and book.

    Raises:
        InvalidInputError: with all errors, by line.
    """
    columns = tuple(request_fields(AllowanceRequest))
    rows = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in columns if name != "book" and name not in (rows.fieldnames or ())]
    unknown = [name for name in rows.fieldnames or () if name not in columns]
    errors = [FieldError(name, _("this column is missing"), line=1) for name in missing]
    errors += [
        FieldError(
            "",
            _("{name!a} is not a column; columns: {columns}").format(
                name=name, columns=", ".join(columns)
            ),
            line=1,
        )
        for name in unknown
    ]
    lines: list[AllowanceLine] = []
    for row in rows if not errors else ():
        given = {name: (row.get(name) or "").strip() for name in columns}
        given = {name: value for name, value in given.items() if value}
        try:
            lines.append(AllowanceLine(rows.line_num, read_request(AllowanceRequest, given)))
        except InvalidInputError as error:
            errors += [_in_line(one, rows.line_num) for one in error.errors]
    if len(lines) > LINES_MAX:
        errors.append(
            FieldError("", _("has more than {most} lines").format(most=number(LINES_MAX)), line=0)
        )
    errors += _twice(lines)
    if errors:
        raise InvalidInputError(errors)
    return lines


def plan_allowances(lines: Sequence[AllowanceLine]) -> list[AllowanceLine]:
    """Return the lines, marked if they are already in the books. Writes nothing.

    Raises:
        InvalidInputError: with all errors, by line.
    """
    planned, errors = [], []
    for one in lines:
        try:
            tenant, book = _named(one.request)
            posted = _posted(one.request, tenant, book)
            planned.append(AllowanceLine(one.line, one.request, posted is not None))
        except InvalidInputError as error:
            errors += [_in_line(wrong, one.line) for wrong in error.errors]
    if errors:
        raise InvalidInputError(errors)
    return planned


def give_allowances(*, actor: Actor, lines: Sequence[AllowanceLine]) -> list[AllowanceLine]:
    """Post the new allowances of a file, all or none; return its lines.

    Raises:
        InvalidInputError: with all errors, by line.
        PermissionDenied: the actor may not manage credit.
    """
    with operation(actor, Action.KEEP_CREDIT):
        planned = plan_allowances(lines)
        for one in planned:
            if not one.is_posted:
                tenant, book = _named(one.request)
                _post(actor, one.request, tenant, book, book_now(book.slug))
    return planned


def _named(request: AllowanceRequest) -> tuple[Tenant, Book]:
    with site_scope():
        tenant = Tenant.objects.filter(slug=request.tenant).first()
    if tenant is None:
        raise invalid(
            "tenant", _("is not a tenant"), _("GET /api/v1/operate/tenants lists them."), "unknown"
        )
    return tenant, require_book(request.book)


def _posted(request: AllowanceRequest, tenant: Tenant, book: Book) -> Transfer | None:
    """Return the posted allowance of this name, or None.

    Raises:
        InvalidInputError: it is posted with another amount.
    """
    entries = Entry.objects.filter(
        transfer_id=allowance_id(book, tenant.pk, request.name), account__tenant=tenant
    )
    entry = entries.select_related("transfer").first()
    if entry is None:
        return None
    if entry.amount != request.amount:
        reason = _("belongs to an allowance of {amount} credits").format(amount=entry.amount)
        raise invalid("name", reason, _("Use another name."), CONFLICT)
    return entry.transfer


def _post(
    actor: Actor, request: AllowanceRequest, tenant: Tenant, book: Book, at: datetime
) -> Made[Transfer]:
    # Serialized per tenant: a concurrent request waits, or finds the name taken.
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    known = _posted(request, tenant, book)
    if known is not None:
        return Made(known, is_replay=True)
    transfer = post_allowance(
        book=book,
        tenant_id=tenant.pk,
        amount_micro=to_micro(request.amount),
        effective_at=at,
        name=request.name,
        reason=request.reason,
    )
    after = {"name": request.name, "amount": str(request.amount), "transfer": str(transfer.pk)}
    subject = f"credit {tenant.slug} {book.slug}"
    write_audit(actor, "credit.allowance", subject, after=after, reason=request.reason)
    return Made(transfer, is_replay=False)


def _in_line(error: FieldError, line: int) -> FieldError:
    return replace(error, line=line)


def _twice(lines: Sequence[AllowanceLine]) -> list[FieldError]:
    first: dict[tuple[str, str, str], int] = {}
    errors = []
    for one in lines:
        key = (one.request.book, one.request.tenant, one.request.name)
        if key in first:
            errors.append(
                FieldError("name", _("repeats line {line}").format(line=first[key]), line=one.line)
            )
        first.setdefault(key, one.line)
    return errors
