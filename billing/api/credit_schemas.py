"""The REST responses of credit."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from evenshare_core.money.budgets import BudgetAction, BudgetPeriod, BudgetState
from tenants.answers import Answer, about


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
    projection: Annotated[str, about("Basis of the projected day, or why there is none.")]


class CreditRow(Answer, frozen=True):
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
    budget: CreditBudgetRow | None


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
