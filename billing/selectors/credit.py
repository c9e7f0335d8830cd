"""Queries of credit for pages and the API: terms, budgets and when they run out, requests."""

from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce
from msgspec.structs import replace

from billing.models import Book, TransferRequest
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.budgets import (
    DAYS_MOST,
    BudgetAction,
    BudgetPeriod,
    BudgetState,
    RunOut,
    project_run_out,
)
from evenshare_core.money.fixed_point import sum_to_credits
from scheduling.selectors.pools.lines import pools_of_book
from scheduling.selectors.visibility import read_visibility
from tenants.answers import Answer, Hidden, about, one_of
from tenants.models import Budget, Tenant
from tenants.scopes import site_reading
from tenants.selectors.access import Access
from tenants.selectors.credit import CreditLeft, PeriodUse, credit_left, daily_spend, last_day
from tenants.selectors.quotas import pools_of

LISTED = 50


class CreditBudgetRow(Answer, frozen=True):
    """A budget in its current period. Days are pool time; `last_day` is included."""

    period: BudgetPeriod
    action: BudgetAction
    first_day: date
    last_day: date
    amount: Decimal
    spent: Decimal
    committed: Annotated[
        Decimal,
        about("Maximum cost of running terms, plus unsettled charges of the period."),
    ]
    left: Decimal
    stops_at: Annotated[
        Decimal,
        about(
            "New and renewed borrowing stops when `spent` plus `committed` reach this: 100 % of"
            " the amount under `block`, 120 % under `warn`."
        ),
    ]
    state: BudgetState
    runs_out_on: Annotated[
        date | None, about("Projected from the last days; null: see `projection`.")
    ]
    projection: Annotated[str, about("Basis of the projected day, or why it is missing.")]


class CreditRow(Answer, frozen=True, kw_only=True):
    """A tenant's credit in a book."""

    tenant: str
    book: str
    balance: Decimal
    credit_limit: Annotated[Decimal | None, about("null: no limit.")]
    reserved: Annotated[Decimal, about("Maximum cost of running terms, plus unsettled charges.")]
    overrun: Annotated[Decimal, about("Amount beyond the limit.")]
    promisable: Annotated[
        Decimal | None,
        about("Amount that rounds may still promise, by limit and budget; null: no limit."),
    ]
    budget: CreditBudgetRow | None = None  # read by `with_budget`
    tenant_id: Hidden[int]
    name: Hidden[str]
    at: Hidden[datetime]
    terms: Hidden[Budget]
    use: Hidden[PeriodUse | None]


class TransferRow(Answer, frozen=True, rename={"uid": "id"}):
    """A request for a transfer, and its state."""

    uid: UUID
    book: str
    tenant: str
    to: str
    amount: Decimal
    reason: str
    state: Annotated[str, one_of(*TransferRequest.State.values)]
    asked_by: str
    asked_at: datetime
    decided_by: str
    decided_at: datetime | None
    answer: str
    transfer: UUID | None
    tenant_name: Hidden[str]
    receiver_name: Hidden[str]


def all_credit_books() -> list[str]:
    """Return the names of all books. A single query."""
    return list(Book.objects.order_by("slug").values_list("slug", flat=True))


def credit_states(
    book: str, at: datetime, *, tenants: Collection[int] | None = None
) -> list[CreditRow]:
    """Return the credit of tenants, by default of all, in a book by slug.

    Two queries, and one more if a budget applies.
    """
    rows = Budget.objects.filter(book=book).select_related("tenant").order_by("tenant__slug")
    budgets = list(rows if tenants is None else rows.filter(tenant_id__in=tenants))
    lefts = credit_left(book, [budget.tenant_id for budget in budgets], at)
    return [
        CreditRow(
            tenant=budget.tenant.slug,
            book=book,
            balance=budget.spendable,
            credit_limit=budget.credit_limit,
            reserved=budget.reserved,
            overrun=budget.overrun,
            promisable=left.credits,
            tenant_id=budget.tenant_id,
            name=budget.tenant.name,
            at=at,
            terms=budget,
            use=left.period,
        )
        for budget in budgets
        for left in (lefts.get(budget.tenant_id, CreditLeft()),)
    ]


def with_budget(row: CreditRow) -> CreditRow:
    """Return the row with its current budget, if any. At most two queries."""
    use, projected = row.use, run_out(row)
    if use is None or projected is None:
        return row
    budget = CreditBudgetRow(
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
    return replace(row, budget=budget)


def run_out(row: CreditRow) -> RunOut | None:
    """Return when the current budget runs out, or None without a budget. Two queries."""
    if row.use is None:
        return None
    return period_run_out(row.tenant_id, row.book, row.at, row.use)


def period_run_out(tenant_id: int, book: str, at: datetime, period: PeriodUse) -> RunOut:
    """Return when a budget runs out, in the period of an instant. Two queries."""
    today = from_us(to_us(at)).date()
    days = daily_spend(tenant_id, book, before=today, days=DAYS_MOST)
    ends = last_day(period.ends) + timedelta(days=1)
    return project_run_out(days, period.left_micro, today=today, ends=ends)


def transfer_wishes(
    tenants: Collection[int] | None, *, state: str = "", before: int | None = None
) -> tuple[list[TransferRow], int | None]:
    """Return the newest requests of tenants (all if None), and the key of the next page."""
    requests = TransferRequest.objects.order_by("-id")
    if tenants is not None:
        requests = requests.filter(tenant_id__in=tenants)
    if state:
        requests = requests.filter(state=state)
    if before is not None:
        requests = requests.filter(id__lt=before)
    rows = _transfer_rows(requests[: LISTED + 1])
    more = rows[LISTED - 1][0] if len(rows) > LISTED else None
    return [row for _, row in rows[:LISTED]], more


def transfer_wish(request: TransferRequest) -> TransferRow:
    ((_, row),) = _transfer_rows(TransferRequest.objects.filter(pk=request.pk))
    return row


def receivers(tenant_id: int, book: str, viewer: Access) -> dict[str, Tenant]:
    """Return the possible receivers of a tenant's credits for a viewer, by slug.

    They have quota in one of the tenant's pools of the book, and that pool shows names.
    """
    own = set(pools_of(tenant_id))
    visible: set[int] = set()
    for pool in pools_of_book(book):
        if pool.id in own:
            seen = read_visibility(pool.id, viewer)
            if seen.all_names or not (seen.hides or seen.disguises):
                visible |= set(seen.known)
    tenants = Tenant.objects.filter(pk__in=visible - {tenant_id}).order_by("slug")
    return {tenant.slug: tenant for tenant in tenants}


def ids_of(tenants: Iterable[Tenant]) -> dict[str, int]:
    return {tenant.slug: tenant.pk for tenant in tenants}


def _transfer_rows(requests: QuerySet[TransferRequest]) -> list[tuple[int, TransferRow]]:
    rows = requests.values_list(
        *("pk", "uid", "book__slug", "tenant__slug", "receiver__slug", "amount", "reason"),
        *("state", "asked_by__username", "asked_at"),
        *(Coalesce("decided_by__username", Value("")), "decided_at", "answer", "transfer"),
        *("tenant__name", "receiver__name"),
    )
    with site_reading():  # the sender itself named the receiver, so it may see the name
        return [(key, TransferRow(*values)) for key, *values in rows]
