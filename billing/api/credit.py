"""Credit over REST: what a tenant has left, what it gives away, and what those set who keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.credit_schemas import (
    AllowanceRow,
    CreditBudgetRow,
    CreditPage,
    CreditRow,
    CreditTermsRow,
    TransferPage,
)
from billing.models import TransferRequest
from billing.requests import AllowanceRequest, CreditTermsRequest, DecisionRequest, GiftRequest
from billing.selectors.clock import book_now
from billing.selectors.credit import (
    CreditState,
    TransferRow,
    all_credit_books,
    credit_states,
    ids_of,
    receivers,
    run_out,
    transfer_wish,
    transfer_wishes,
)
from billing.services.allowances import give_allowance
from billing.services.terms import lock_budget, require_book, set_credit_terms
from billing.services.transfers import approve_transfer, ask_transfer, refuse_transfer
from evenshare_core.money.budgets import BudgetAction, BudgetPeriod
from evenshare_core.money.fixed_point import sum_to_credits
from scheduling.api.base import SchedulingView, idempotency_key, replay_header
from scheduling.api.schemas import (
    IDEMPOTENCY_KEY,
    IDEMPOTENT_REPLAYED,
    TENANT,
)
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.base import actor_of
from tenants.api.cursors import make_cursor, read_cursor
from tenants.api.operate import (
    IF_MATCH,
    OperateView,
    answer,
    etag_of,
    page,
    refusal,
    request_of,
)
from tenants.api.problems import bad_field, not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import CURSOR
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope, tenants_scope
from tenants.selectors.tenants import find_tenant
from tenants.tokens import Scope

STATES = TransferRequest.State.values
CREDIT_TERMS = answer_serializer(CreditTermsRow)
STATE = OpenApiParameter("state", OpenApiTypes.STR, OpenApiParameter.QUERY, enum=STATES)


class CreditList(SchedulingView):
    """What tenants have left."""

    query: ClassVar[tuple[str, ...]] = ("tenant",)

    @extend_schema(operation_id="credit_list", responses={200: CreditPage}, parameters=[TENANT])
    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """List balance, limit and budget of your tenants, by book."""
        tenant = self.filtered_tenant(Action.SEE_MONEY)
        ids: Sequence[int] | None = None
        if tenant is not None:
            ids = [tenant.pk]
        elif not self.sees_all(Action.SEE_MONEY):
            ids = sorted(self.access.tenant_ids)
        with tenants_scope(ids):
            rows = [
                _credit(state)
                for book in all_credit_books()
                for state in credit_states(book, book_now(book), tenants=ids)
            ]
        return Response(page(plain(rows)))


class TransferList(SchedulingView):
    """What a tenant wants to give away."""

    scopes: ClassVar[dict[str, str]] = {"GET": Scope.READ.value, "POST": Scope.CREDIT_WRITE.value}
    query: ClassVar[tuple[str, ...]] = ("tenant", "state", "cursor")

    @extend_schema(
        operation_id="transfer_list",
        responses={200: TransferPage},
        parameters=[TENANT, STATE, CURSOR],
    )
    def get(self, request: Request) -> Response:
        """List the requests for transfers of your tenants, newest first."""
        tenant = self.filtered_tenant(Action.SEE_MONEY)
        ids: Sequence[int] | None = None
        if tenant is not None:
            ids = [tenant.pk]
        elif not self.sees_all(Action.SEE_MONEY):
            ids = sorted(self.access.tenant_ids)
        with tenants_scope(ids):
            return _transfers(request, ids)

    @extend_schema(
        operation_id="transfer_ask",
        request=request_serializer(GiftRequest),
        responses={201: answer_serializer(TransferRow)},
        parameters=[IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED],
    )
    def post(self, request: Request) -> Response:
        """Ask that credits of a tenant that you manage are given to another one."""
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
            shown = plain(transfer_wish(asked.request))
        return Response(shown, status=201, headers=replay_header(is_replay=asked.is_replay))

    def _giver(self, slug: str) -> Tenant:
        if not slug and len(self.access.memberships) != 1:
            raise bad_field("tenant", "is required", "Name one of your tenants.")
        return self.own_tenant(slug or self.access.memberships[0].slug, Action.ASK_TRANSFER)

    def handle_exception(self, exc: Exception) -> Response:
        """Tell a refused request by its fields."""
        return super().handle_exception(refusal(exc) if isinstance(exc, InvalidInputError) else exc)


class CreditView(OperateView):
    """As other views of the operator; whoever keeps the books changes here too."""

    edit_action: ClassVar[Action] = Action.KEEP_CREDIT


class OperateCredit(CreditView):
    """The terms of a tenant's credit in a book."""

    @extend_schema(operation_id="operate_credit", responses={200: CREDIT_TERMS})
    def get(self, request: Request, slug: str, book: str) -> Response:  # noqa: ARG002 - DRF's
        """Return the credit limit and the budget of a tenant."""
        with site_scope():
            tenant = self._named(slug, book)
            row = _terms(tenant, book)
        return answer(row, etag_of(row))

    @extend_schema(
        operation_id="operate_credit_set",
        request=request_serializer(CreditTermsRequest),
        responses={200: CREDIT_TERMS},
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, slug: str, book: str) -> Response:
        """Set the credit limit and the budget; what is left out is none."""
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
    """Credits from the operator's account."""

    preconditions: ClassVar[tuple[str, ...]] = ()

    @extend_schema(
        operation_id="operate_allowance",
        request=request_serializer(AllowanceRequest),
        responses={201: answer_serializer(AllowanceRow)},
        parameters=[IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED],
    )
    def post(self, request: Request) -> Response:
        """Post an allowance. The same name of a tenant, or the same key, posts it once."""
        key = idempotency_key(request)
        wanted = request_of(AllowanceRequest, request.data)
        given = give_allowance(actor=self.actor, request=wanted, key=key)
        moved = given.transfer
        row = AllowanceRow(
            moved.pk, wanted.tenant, wanted.book, wanted.amount, wanted.name, moved.effective_at
        )
        return Response(plain(row), status=201, headers=replay_header(is_replay=given.is_replay))


class OperateTransferList(CreditView):
    """Requests for transfers of all tenants."""

    preconditions: ClassVar[tuple[str, ...]] = ()
    query: ClassVar[tuple[str, ...]] = ("state", "cursor")

    @extend_schema(
        operation_id="operate_transfer_list",
        responses={200: TransferPage},
        parameters=[STATE, CURSOR],
    )
    def get(self, request: Request) -> Response:
        """List the requests for transfers, newest first."""
        with site_scope():
            return _transfers(request, None)


class TransferDecision(CreditView):
    """An answer to a request; repeating it changes nothing."""

    preconditions: ClassVar[tuple[str, ...]] = ()

    def decided(self, request: Request, uid: UUID, *, is_approved: bool) -> Response:
        """Decide a request as the body says; 404 where there is none."""
        with site_scope():
            if not TransferRequest.objects.filter(uid=uid).exists():
                raise not_there()
        wanted = request_of(DecisionRequest, request.data)
        decide = approve_transfer if is_approved else refuse_transfer
        asked = decide(actor=self.actor, uid=uid, answer=wanted.answer)
        with site_scope():
            return Response(plain(transfer_wish(asked)))


class TransferApprove(TransferDecision):
    """Moves the credits."""

    @extend_schema(
        operation_id="operate_transfer_approve",
        request=request_serializer(DecisionRequest),
        responses={200: answer_serializer(TransferRow)},
    )
    def post(self, request: Request, uid: UUID) -> Response:
        """Approve a request: its credits move. Nobody approves their own."""
        return self.decided(request, uid, is_approved=True)


class TransferRefuse(TransferDecision):
    """Moves nothing."""

    @extend_schema(
        operation_id="operate_transfer_refuse",
        request=request_serializer(DecisionRequest),
        responses={200: answer_serializer(TransferRow)},
    )
    def post(self, request: Request, uid: UUID) -> Response:
        """Refuse a request."""
        return self.decided(request, uid, is_approved=False)


def _transfers(request: Request, ids: Sequence[int] | None) -> Response:
    state = request.query_params.get("state", "")
    if state and state not in STATES:
        raise bad_field("state", "is not a state", f"Of: {', '.join(STATES)}.")
    key = read_cursor(request, "transfers")
    rows, more = transfer_wishes(ids, state=state, before=key[0] if key else None)
    following = make_cursor("transfers", more) if more is not None else None
    return Response({"results": plain(rows), "next": following})


def _credit(state: CreditState) -> CreditRow:
    micro = state.left.micro
    return CreditRow(
        tenant=state.slug,
        book=state.book,
        balance=state.balance,
        credit_limit=state.credit_limit,
        reserved=state.reserved,
        overrun=state.overrun,
        promisable=None if micro is None else sum_to_credits(micro),
        budget=_budget(state),
    )


def _budget(state: CreditState) -> CreditBudgetRow | None:
    use, projected = state.left.period, run_out(state)
    if use is None or projected is None:
        return None
    return CreditBudgetRow(
        period=use.kind,
        action=use.action,
        first_day=use.begins.date(),
        last_day=use.last_day,
        amount=sum_to_credits(use.amount_micro),
        spent=sum_to_credits(use.spent_micro),
        committed=sum_to_credits(use.committed_micro),
        left=sum_to_credits(use.left_micro),
        stops_at=sum_to_credits(use.stop_micro),
        state=use.state,
        runs_out_on=projected.on,
        projection=projected.reason,
    )


def _terms(tenant: Tenant, book: str) -> dict[str, Any]:
    row = CreditTermsRow(tenant.slug, book)
    for state in credit_states(book, book_now(book), tenants=[tenant.pk]):
        budget = state.budget
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
