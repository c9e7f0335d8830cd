"""Requests about credit, a struct per resource: terms, allowances, transfers, decisions."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar

from django.utils.translation import gettext as _
from msgspec import Meta

from evenshare_core.money.budgets import BudgetAction, BudgetPeriod
from tenants.input import readers
from tenants.input.errors import FieldErrors
from tenants.input.readers import REASON_MAX
from tenants.input.requests import Input, Request
from tenants.language import gettext_noop
from tenants.requests import Reason, SlugName

BookName = Annotated[SlugName, Meta(description="The book; `main` is for pools in real time.")]
KINDS = tuple(kind.value for kind in BudgetPeriod)
ACTIONS = tuple(action.value for action in BudgetAction)
AMOUNT_HINT = gettext_noop("Credits above 0, with at most six decimals.")
NAME_MAX = 63


def _read_amount(given: Mapping[str, object], errors: FieldErrors) -> Decimal:
    """Read a required amount above 0; return 0 if it is missing or invalid."""
    if given.get("amount") is None:
        errors.add("amount", _("is required"), _(AMOUNT_HINT), "required")
        return Decimal(0)
    own = FieldErrors()
    value = readers.credits(given, "amount", own)
    if own or not value:
        errors.add("amount", _("must be an amount above 0"), _(AMOUNT_HINT))
        return Decimal(0)
    return value


def _read_reason(given: Mapping[str, object], errors: FieldErrors) -> str:
    """Read a required reason of one line; return an empty text if it is missing or invalid."""
    before = len(errors.errors)
    value = readers.line(given, "reason", errors, most_bytes=4 * REASON_MAX)
    if len(errors.errors) > before:
        return ""
    if not value:
        errors.add(
            "reason", _("is required"), _("Give a purpose: it is kept in the books."), "required"
        )
    elif len(value) > REASON_MAX:
        errors.add(
            "reason",
            _("is longer than {most} characters").format(most=REASON_MAX),
            code="too_long",
        )
    return value


Amount = Annotated[
    Decimal,
    Meta(description="Credits above 0."),
    Input(label="Amount", hint=AMOUNT_HINT, unit="credits", read=_read_amount),
]


class CreditTermsRequest(Request, frozen=True, kw_only=True):
    """The terms of a tenant's credit in a book: its limit, and a budget for a period."""

    NOUN: ClassVar[str] = "credit terms"
    NULL_IS_ABSENT: ClassVar[bool] = False

    credit_limit: Annotated[
        Decimal | None,
        Meta(description="How far below 0 the balance may go, in credits; null: no limit."),
        Input(
            label="Credit limit",
            hint="How far the balance may go below 0; empty: no limit.",
            unit="credits",
        ),
    ] = None
    budget_amount: Annotated[
        Decimal | None,
        Meta(description="What may be spent on borrowed GPUs in a period; null: no budget."),
        Input(
            label="Budget",
            hint="For borrowed GPUs in each period; empty: no budget.",
            unit="credits",
        ),
    ] = None
    budget_period: Annotated[
        str,
        Meta(description="Each calendar month or quarter, or a custom period."),
        Input(label="For", choices=KINDS),
    ] = BudgetPeriod.MONTH.value
    budget_action: Annotated[
        str,
        Meta(
            description="warn: a notice at 100 %, nothing more is borrowed at 120 %;"
            " block: nothing more is borrowed at 100 %."
        ),
        Input(label="When it is used up", choices=ACTIONS),
    ] = BudgetAction.WARN.value
    budget_from: Annotated[
        datetime | None,
        Meta(description="The start of a custom period: midnight UTC of pool time."),
        Input(label="From", hint="The first day of a custom period, such as 2026-12-01."),
    ] = None
    budget_until: Annotated[
        datetime | None,
        Meta(description="The end of a custom period: midnight UTC of pool time."),
        Input(label="Until", hint="The first day after a custom period."),
    ] = None
    reason: Reason = ""


class AllowanceRequest(Request, frozen=True, kw_only=True):
    """Credits for a tenant from the operator's account, once per tenant and name."""

    NOUN: ClassVar[str] = "an allowance"

    tenant: SlugName
    book: BookName = "main"
    amount: Amount
    name: Annotated[
        str,
        Meta(
            pattern=rf"^[\w.:@+ -]{{1,{NAME_MAX}}}$",
            description="Unique name of the allowance for the tenant: the same name is posted"
            " once.",
        ),
        Input(
            label="Name",
            hint="Such as “2026-Q4”. The same name is posted only once.",
            complaint=f"Use 1 to {NAME_MAX} letters, digits, spaces and . : @ + - _",
        ),
    ]
    reason: Annotated[
        str,
        Meta(description="The reason. It is kept in the books and in the audit log."),
        Input(label="Reason", read=_read_reason),
    ]


class GiftRequest(Request, frozen=True, kw_only=True):
    """Credits that a tenant wants to give to another one."""

    NOUN: ClassVar[str] = "a transfer"

    tenant: Annotated[
        SlugName,
        Meta(description="The tenant that gives; by default the only tenant that you manage."),
    ] = ""
    book: BookName = "main"
    to: Annotated[
        SlugName,
        Meta(description="The tenant that receives: a tenant of your pools."),
        Input(label="To", hint="A tenant of your pools.", complaint="Choose a tenant."),
    ]
    amount: Amount
    reason: Annotated[
        str,
        Meta(description="Purpose, shown to the person who decides."),
        Input(label="Reason", hint="Shown to the person who decides.", read=_read_reason),
    ]


class DecisionRequest(Request, frozen=True, kw_only=True):
    """A decision on a request for a transfer."""

    NOUN: ClassVar[str] = "a decision"

    answer: Annotated[
        str,
        Meta(max_length=REASON_MAX, description="Answer to the requester."),
        Input(label="Answer"),
    ] = ""
