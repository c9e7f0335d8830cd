"""Shapes of the answers about credit, for the API's description. Views write plain dictionaries."""

from __future__ import annotations

from rest_framework import serializers as s

from billing.models import TransferRequest
from evenshare_core.money.budgets import BudgetAction, BudgetPeriod, BudgetState
from scheduling.api.schemas import Credits

STATES = [state.value for state in TransferRequest.State]


class CreditBudgetRow(s.Serializer[object]):
    """A budget in the period that holds. Days are of pool time; `last_day` is in it."""

    period = s.ChoiceField([kind.value for kind in BudgetPeriod])
    action = s.ChoiceField([action.value for action in BudgetAction])
    first_day = s.DateField()
    last_day = s.DateField()
    amount = Credits()
    spent = Credits()
    committed = Credits(
        help_text="The worst case of running terms, and charges of the period not settled yet."
    )
    left = Credits()
    stops_at = Credits(
        help_text="Nothing more is borrowed, anew or by renewal, once so much is spent and"
        " committed: 100 % of the amount under `block`, 120 % under `warn`."
    )
    state = s.ChoiceField([state.value for state in BudgetState])
    runs_out_on = s.DateField(
        allow_null=True, help_text="If the days to come are like the last ones; else `projection`."
    )
    projection = s.CharField(help_text="What the day rests on, or why there is none.")


class CreditRow(s.Serializer[object]):
    """A tenant's credit in a book."""

    tenant = s.CharField()
    book = s.CharField()
    balance = Credits()
    credit_limit = Credits(allow_null=True, help_text="null: no limit.")
    reserved = Credits(help_text="Worst case of running terms, and charges not settled yet.")
    overrun = Credits(help_text="How far it is beyond its limit.")
    promisable = Credits(
        allow_null=True, help_text="What rounds may promise, by limit and budget; null: any."
    )
    budget = CreditBudgetRow(allow_null=True)


class CreditPage(s.Serializer[object]):
    """Credit of tenants."""

    results = CreditRow(many=True)
    next = s.CharField(allow_null=True)


class CreditTermsRow(s.Serializer[object]):
    """What holds of a tenant's credit in a book, as it was set."""

    tenant = s.CharField()
    book = s.CharField()
    credit_limit = Credits(allow_null=True)
    budget_amount = Credits(allow_null=True)
    budget_period = s.ChoiceField([kind.value for kind in BudgetPeriod])
    budget_action = s.ChoiceField([action.value for action in BudgetAction])
    budget_from = s.DateTimeField(allow_null=True)
    budget_until = s.DateTimeField(allow_null=True)


class AllowanceRow(s.Serializer[object]):
    """A posted allowance."""

    transfer = s.UUIDField()
    tenant = s.CharField()
    book = s.CharField()
    amount = Credits()
    name = s.CharField()
    effective_at = s.DateTimeField()


class TransferRow(s.Serializer[object]):
    """A request for a transfer, and what has become of it."""

    id = s.UUIDField()
    book = s.CharField()
    tenant = s.CharField()
    to = s.CharField()
    amount = Credits()
    reason = s.CharField()
    state = s.ChoiceField(STATES)
    asked_by = s.CharField()
    asked_at = s.DateTimeField()
    decided_by = s.CharField(allow_blank=True)
    decided_at = s.DateTimeField(allow_null=True)
    answer = s.CharField(allow_blank=True)
    transfer = s.UUIDField(allow_null=True)


class TransferPage(s.Serializer[object]):
    """Requests for transfers, the newest first."""

    results = TransferRow(many=True)
    next = s.CharField(allow_null=True)
