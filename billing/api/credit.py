"""REST views of remaining credit, transfers between tenants, limits, budgets and allowances."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.base import MoneyView
from billing.models import TransferRequest
from billing.requests import AllowanceRequest, CreditTermsRequest, DecisionRequest, GiftRequest
from billing.selectors.clock import book_now
from billing.selectors.credit import (
    CreditRow,
    TransferRow,
    all_credit_books,
    credit_states,
    ids_of,
    receivers,
    transfer_wish,
    transfer_wishes,
    with_budget,
)
from billing.services.allowances import give_allowance
from billing.services.terms import lock_budget, require_book, set_credit_terms
from billing.services.transfers import approve_transfer, ask_transfer, refuse_transfer
from evenshare_core.money.budgets import BudgetAction, BudgetPeriod
from scheduling.api.base import idempotency_key, replay_header
from scheduling.api.schemas import ONCE, TENANT
from tenants.answers import Answer, answer_of, plain
from tenants.api.base import Who, actor_of
from tenants.api.operate import IF_MATCH, OperateView, answer, etag_of, refusal, request_of
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import CURSOR, Listed, Page, Shown, described
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope, tenants_scope
from tenants.selectors.tenants import find_tenant
from tenants.tokens import Scope

STATES = TransferRequest.State.values
STATE = OpenApiParameter("state", OpenApiTypes.STR, OpenApiParameter.QUERY, enum=STATES)


class CreditTermsRow(Answer, frozen=True):
    """The settings of a tenant's credit in a book."""

    tenant: str
    book: str
    credit_limit: Decimal | None = None
    budget_amount: Decimal | None = None
    budget_period: BudgetPeriod = BudgetPeriod.MONTH
    budget_action: BudgetAction = BudgetAction.WARN
    budget_from: datetime | None = None
    budget_until: datetime | None = None


class AllowanceRow(Answer, frozen=True):
    """A posted allowance."""

    transfer: UUID
    tenant: str
    book: str
    amount: Decimal
    name: str
    effective_at: datetime


class CreditList(Listed, MoneyView):
    """List balance, limit and budget of your tenants, by book."""

    address = "credit"
    operation = "credit_list"
    row = CreditRow
    about = "Credit of tenants."
    parameters = (TENANT,)
    shows = ("Tenant.slug",)

    def page(self) -> Page:
        ids = self.asked_ids()
        with tenants_scope(ids):
            rows = [
                with_budget(state)
                for book in all_credit_books()
                for state in credit_states(book, book_now(book), tenants=ids)
            ]
        return Page(rows)


class TransferView(Listed):
    """A list of requests for transfers, newest first."""

    row = TransferRow
    about = "Requests for transfers, the newest first."

    def wishes(self, ids: Sequence[int] | None) -> Page:
        """Return a page of the tenants' requests, or of all tenants' if `ids` is None."""
        state = self.param("state")
        if state and state not in STATES:
            raise bad_field("state", "is not a state", f"States: {', '.join(STATES)}.")
        before = self.before("transfers")
        with tenants_scope(ids):
            rows, more = transfer_wishes(ids, state=state, before=before)
        return Page(rows, None if more is None else [more])


class TransferList(TransferView, MoneyView):
    """List the requests for transfers of your tenants, newest first."""

    address = "transfers"
    operation = "transfer_list"
    who = Who.ANYBODY_SIGNED_IN
    parameters = (TENANT, STATE, CURSOR)
    shows = ("TransferRequest.reason", "TransferRequest.uid")
    scopes: ClassVar[dict[str, str]] = {"GET": Scope.READ.value, "POST": Scope.CREDIT_WRITE.value}

    def page(self) -> Page:
        return self.wishes(self.asked_ids())

    @described("transfer_ask", GiftRequest, TransferRow, 201, *ONCE)
    def post(self, request: Request) -> Response:
        """Request a transfer of credits from a tenant that you manage to another tenant."""
        key = idempotency_key(request)
        wanted = request_of(GiftRequest, request.data)
        tenant = self._giver(wanted.tenant)
        with site_scope():
            names = receivers(tenant.pk, wanted.book, self.access)
        asked = ask_transfer(
            actor=actor_of(self.person),
            tenant=tenant,
            receivers=ids_of(names.values()),
            request=wanted,
            key=key,
        )
        with tenant_scope(tenant.pk):
            shown = plain(transfer_wish(asked.row))
        return Response(shown, status=201, headers=replay_header(is_replay=asked.is_replay))

    def _giver(self, slug: str) -> Tenant:
        if not slug and len(self.access.memberships) != 1:
            raise bad_field("tenant", "is required", "Name one of your tenants.")
        return self.own_tenant(slug or self.access.memberships[0].slug, Action.ASK_TRANSFER)

    def handle_exception(self, exc: Exception) -> Response:
        """Return a refused request with errors by field."""
        return super().handle_exception(refusal(exc) if isinstance(exc, InvalidInputError) else exc)


class CreditView(OperateView):
    """A view for site roles; finance users may also make changes."""

    edit_action: ClassVar[Action] = Action.KEEP_CREDIT


class OperateCredit(Shown, CreditView):
    """Return the credit limit and the budget of a tenant."""

    address = "operate/credit/<slug:slug>/<slug:book>"
    operation = "operate_credit"
    answer = CreditTermsRow
    shows = ("Tenant.slug",)

    def show(self, slug: str, book: str) -> Response:
        with site_scope():
            tenant = self._named(slug, book)
            row = _terms(tenant, book)
        return answer(row, etag_of(row))

    @described("operate_credit_set", CreditTermsRequest, CreditTermsRow, 200, IF_MATCH)
    def put(self, request: Request, slug: str, book: str) -> Response:
        """Set the credit limit and the budget. An omitted limit or budget is removed."""
        with site_scope():
            tenant = self._named(slug, book)
            lock_budget(tenant, require_book(book))
            self.require_match(etag_of(_terms(tenant, book)))
            wanted = request_of(CreditTermsRequest, request.data)
            set_credit_terms(actor=self.actor, tenant=tenant, book=book, request=wanted)
            row = _terms(tenant, book)
        return answer(row, etag_of(row))

    def _named(self, slug: str, book: str) -> Tenant:
        tenant = find_tenant(slug)
        if tenant is None or book not in all_credit_books():
            raise not_there()
        return tenant


class AllowanceList(CreditView):
    address = "operate/allowances"
    preconditions: ClassVar[tuple[str, ...]] = ()

    @described("operate_allowance", AllowanceRequest, AllowanceRow, 201, *ONCE)
    def post(self, request: Request) -> Response:
        """Post an allowance.

        For each name, and for each key, a tenant's allowance is posted only once.
        """
        key = idempotency_key(request)
        wanted = request_of(AllowanceRequest, request.data)
        given = give_allowance(actor=self.actor, request=wanted, key=key)
        moved = given.row
        at = moved.effective_at
        row = answer_of(AllowanceRow, wanted, transfer=moved.pk, effective_at=at)
        return Response(plain(row), status=201, headers=replay_header(is_replay=given.is_replay))


class OperateTransferList(TransferView, CreditView):
    """List the requests for transfers of all tenants, newest first."""

    address = "operate/transfers"
    operation = "operate_transfer_list"
    parameters = (STATE, CURSOR)
    shows = ("TransferRequest.reason", "Tenant.slug")
    preconditions: ClassVar[tuple[str, ...]] = ()

    def page(self) -> Page:
        return self.wishes(None)


class TransferDecision(CreditView):
    """A decision on a request; repeating the same decision changes nothing."""

    preconditions: ClassVar[tuple[str, ...]] = ()

    def decided(self, request: Request, uid: UUID, *, is_approved: bool) -> Response:
        """Apply the decision in the request's body.

        Raises:
            Problem: 404 if the request does not exist.
        """
        with site_scope():
            if not TransferRequest.objects.filter(uid=uid).exists():
                raise not_there()
        wanted = request_of(DecisionRequest, request.data)
        decide = approve_transfer if is_approved else refuse_transfer
        asked = decide(actor=self.actor, uid=uid, answer=wanted.answer)
        with site_scope():
            return Response(plain(transfer_wish(asked)))


class TransferApprove(TransferDecision):
    address = "operate/transfers/<uuid:uid>/approve"

    @described("operate_transfer_approve", DecisionRequest, TransferRow)
    def post(self, request: Request, uid: UUID) -> Response:
        """Approve a request, so that its credits are transferred.

        A user cannot approve their own request.
        """
        return self.decided(request, uid, is_approved=True)


class TransferRefuse(TransferDecision):
    address = "operate/transfers/<uuid:uid>/refuse"

    @described("operate_transfer_refuse", DecisionRequest, TransferRow)
    def post(self, request: Request, uid: UUID) -> Response:
        """Refuse a request."""
        return self.decided(request, uid, is_approved=False)


def _terms(tenant: Tenant, book: str) -> dict[str, Any]:
    row = CreditTermsRow(tenant.slug, book)
    for state in credit_states(book, book_now(book), tenants=[tenant.pk]):
        budget = state.terms
        row = CreditTermsRow(
            tenant.slug,
            book,
            credit_limit=budget.credit_limit,
            budget_amount=budget.period_amount,
            budget_period=BudgetPeriod(budget.period_kind),
            budget_action=BudgetAction(budget.period_action),
            budget_from=budget.period_starts_at,
            budget_until=budget.period_ends_at,
        )
    rendered: dict[str, Any] = plain(row)
    return rendered
