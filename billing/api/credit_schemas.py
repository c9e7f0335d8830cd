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
        about("The worst case of running terms, and charges of the period not settled yet."),
    ]
    left: Decimal
    stops_at: Annotated[
        Decimal,
        about(
            "Nothing more is borrowed, anew or by renewal, once so much is spent and committed:"
            " 100 % of the amount under `block`, 120 % under `warn`."
        ),
    ]
    state: BudgetState
    runs_out_on: Annotated[
        date | None, about("If the days to come are like the last ones; else `projection`.")
    ]
    projection: Annotated[str, about("What the day rests on, or why there is none.")]


class CreditRow(Answer, frozen=True):
    """A tenant's credit in a book."""

    tenant: str
    book: str
    balance: Decimal
    credit_limit: Annotated[Decimal | None, about("null: no limit.")]
    reserved: Annotated[Decimal, about("Worst case of running terms, and charges not settled yet.")]
    overrun: Annotated[Decimal, about("How far it is beyond its limit.")]
    promisable: Annotated[
        Decimal | None, about("What rounds may promise, by limit and budget; null: any.")
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
