"""Transfers between tenants: a manager requests one, and another user of the site decides it."""

import uuid
from collections.abc import Mapping

from django.core.exceptions import PermissionDenied
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from billing.ledger import CreditLimitError, post_gift
from billing.models import Book, TransferRequest
from billing.requests import GiftRequest
from billing.selectors.clock import book_now
from billing.services.terms import lock_budget, require_book
from evenshare_core.money.fixed_point import sum_to_credits, to_micro
from tenants.audit import Actor, write_audit
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import CONFLICT, invalid
from tenants.language import gettext_noop
from tenants.models import Membership, Tenant
from tenants.operator_transaction import operation
from tenants.permissions import TENANT_ACTIONS, Action
from tenants.scopes import site_scope
from tenants.selectors.credit import credit_left

State = TransferRequest.State
OPEN_MOST = 20
LACKS = gettext_noop("is more than the tenant may give away")


def ask_transfer(
    *,
    actor: Actor,
    tenant: Tenant,
    receivers: Mapping[str, int],
    request: GiftRequest,
    key: str | None = None,
) -> Made[TransferRequest]:
    """Request a transfer of a tenant's credits to another tenant; nothing moves yet.

    `receivers`: slug -> id of the tenants that the requester may see.

    Raises:
        InvalidInputError: on `to`, `amount` or `book`, or too many requests are open.
        PermissionDenied: the actor does not manage the tenant (any more).
        tenants.idempotency.MismatchError, tenants.idempotency.InFlightError: see `begin_reply`.
    """
    with site_scope():
        _check_manager(actor, tenant)
        book = require_book(request.book)
        uid = uuid.uuid4()
        body = [request.book, request.to, str(request.amount), request.reason]
        asked = KeyedRequest.of(tenant, actor.user, "transfers", key, body)
        before = begin_reply(asked, [str(uid)]) if asked else None
        if before is not None:
            known = TransferRequest.objects.select_related("receiver", "book", "asked_by")
            return Made(known.get(uid=before[0]), is_replay=True)
        receiver = receivers.get(request.to)
        if receiver is None or receiver == tenant.pk:
            raise invalid("to", _("is not a tenant to which you can transfer"), code="unknown")
        lock_budget(tenant, book)
        if TransferRequest.objects.filter(tenant=tenant, state=State.ASKED).count() >= OPEN_MOST:
            reason = _("{most} requests of the tenant already wait for a decision.").format(
                most=OPEN_MOST
            )
            raise invalid("", reason, _("Wait for a decision."), CONFLICT)
        _check_room(tenant, book, to_micro(request.amount))
        made = TransferRequest.objects.create(
            uid=uid,
            book=book,
            tenant=tenant,
            receiver_id=receiver,
            amount=request.amount,
            reason=request.reason,
            asked_by=actor.user,
        )
        made.refresh_from_db()
        _record(actor, made, "credit.transfer_asked", request.reason)
    return Made(made, is_replay=False)


def approve_transfer(*, actor: Actor, uid: uuid.UUID, answer: str = "") -> TransferRequest:
    """Approve a request and move its credits; an approved request is returned unchanged.

    Raises:
        InvalidInputError: no such request, refused, own request, or not enough credit.
        PermissionDenied: the actor may not manage credit.
    """
    with operation(actor, Action.KEEP_CREDIT):
        asked = _lock(actor, uid, State.APPROVED)
        if asked.state == State.APPROVED:
            return asked
        try:
            transfer = post_gift(
                book=asked.book,
                giver_id=asked.tenant_id,
                receiver_id=asked.receiver_id,
                amount_micro=to_micro(asked.amount),
                effective_at=book_now(asked.book.slug),
                request=asked.uid,
            )
        except CreditLimitError as error:
            raise invalid(
                "amount",
                f"{_(LACKS)}: {error}.",
                _("Refuse it."),
                CONFLICT,
            ) from error
        asked.transfer = transfer
        return _decided(actor, asked, State.APPROVED, answer)


def refuse_transfer(*, actor: Actor, uid: uuid.UUID, answer: str = "") -> TransferRequest:
    """Refuse a request; a refused request is returned unchanged.

    Raises:
        InvalidInputError: no such request, approved, or own request.
        PermissionDenied: the actor may not manage credit.
    """
    with operation(actor, Action.KEEP_CREDIT):
        asked = _lock(actor, uid, State.REFUSED)
        if asked.state == State.REFUSED:
            return asked
        return _decided(actor, asked, State.REFUSED, answer)


def _check_manager(actor: Actor, tenant: Tenant) -> None:
    roles = Membership.objects.filter(user=actor.user, tenant=tenant, user__is_active=True)
    role = roles.values_list("role", flat=True).first()
    if Action.ASK_TRANSFER not in TENANT_ACTIONS.get(role or "", frozenset()):
        raise PermissionDenied


def _check_room(tenant: Tenant, book: Book, amount_micro: int) -> None:
    """Check the credit limit and reserved credits; a budget limits only borrowing."""
    left = credit_left(book.slug, [tenant.pk], book_now(book.slug))[tenant.pk].credit_micro
    if left is not None and amount_micro > left:
        most = sum_to_credits(max(0, left))
        raise invalid(
            "amount",
            _(LACKS),
            _("At most {most} credits: the rest is owed or reserved.").format(most=most),
        )


def _lock(actor: Actor, uid: uuid.UUID, wanted: State) -> TransferRequest:
    rows = TransferRequest.objects.select_for_update(of=("self",))
    asked = rows.select_related("book", "tenant", "receiver", "asked_by").filter(uid=uid).first()
    if asked is None:
        raise invalid("uid", _("is not a request for a transfer"), code="unknown")
    if asked.state not in (State.ASKED, wanted):
        raise invalid("uid", _("was already {state}").format(state=asked.state), code=CONFLICT)
    if asked.asked_by_id == actor.user.pk:
        raise invalid("uid", _("is your own request: another person must decide it"), code=CONFLICT)
    return asked


def _decided(actor: Actor, asked: TransferRequest, state: State, answer: str) -> TransferRequest:
    asked.state, asked.answer, asked.decided_by = state, answer, actor.user
    asked.decided_at = Now()
    asked.save(update_fields=["state", "answer", "decided_by", "decided_at", "transfer"])
    asked.refresh_from_db(fields=["decided_at"])
    _record(actor, asked, f"credit.transfer_{state.value}", answer)
    return asked


def _record(actor: Actor, asked: TransferRequest, action: str, reason: str) -> None:
    after = {
        "to": asked.receiver.slug,
        "amount": str(asked.amount),
        "request": str(asked.uid),
    } | ({"transfer": str(asked.transfer_id)} if asked.transfer_id else {})
    subject = f"credit {asked.tenant.slug} {asked.book.slug}"
    write_audit(actor, action, subject, after=after, reason=reason)
