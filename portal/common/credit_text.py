"""Texts about a tenant's credit: what is left, the used budget, and when the budget runs out."""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.credit import CreditRow, period_run_out, run_out
from evenshare_core.money.budgets import (
    ALL_PERCENT,
    FULL_PERCENT,
    NOTICE_PERCENT,
    STOP_PERCENT,
    BudgetAction,
    BudgetPeriod,
    BudgetState,
    RunOut,
)
from evenshare_core.money.fixed_point import sum_to_credits
from portal.charts.figures import thousands
from tenants.selectors.credit import PeriodUse, credit_left, last_day

PERIODS = {
    BudgetPeriod.MONTH: gettext_noop("calendar month"),
    BudgetPeriod.QUARTER: gettext_noop("calendar quarter"),
    BudgetPeriod.CUSTOM: gettext_noop("custom period"),
}
ACTIONS = {
    BudgetAction.WARN: gettext_noop("notice; nothing more is borrowed at {percent} %"),
    BudgetAction.BLOCK: gettext_noop("nothing more is borrowed at {percent} %"),
}
STOPS_AT = {BudgetAction.WARN: STOP_PERCENT, BudgetAction.BLOCK: FULL_PERCENT}
# For each state, its mark, its meaning, and the percentage that bounds it.
_REACHED = gettext_noop("{percent} % reached")
STATES = {
    BudgetState.OPEN: ("ok", gettext_noop("below {percent} %"), NOTICE_PERCENT),
    BudgetState.NOTICE: ("warn", _REACHED, NOTICE_PERCENT),
    BudgetState.FULL: ("warn", _REACHED, FULL_PERCENT),
    BudgetState.STOPPED: ("bad", _REACHED, STOP_PERCENT),
}


@dataclass(frozen=True, slots=True)
class BudgetText:
    """A budget in its current period, in credits; `percent` is the spent and committed part.

    Borrowing stops at `stop_percent`, which is `stops_at` credits. `run_out`, in notices only: when
    the budget will run out, or why that cannot be estimated.
    """

    period: str
    first: str
    last: str
    action: str
    amount: Decimal
    spent: Decimal
    committed: Decimal
    left: Decimal
    stops_at: Decimal
    stop_percent: int
    percent: int
    kind: str
    state: str
    is_open: bool
    stops: bool
    run_out: str = ""

    @property
    def percent_text(self) -> str:
        return f"{thousands(self.percent)} %"


def action_text(action: BudgetAction) -> str:
    """Return what happens when a budget is used up."""
    return _(ACTIONS[action]).format(percent=STOPS_AT[action])


def budget_text(use: PeriodUse) -> BudgetText:
    kind, state, bound = STATES[use.state]
    return BudgetText(
        period=_(PERIODS[use.kind]),
        first=f"{use.begins:%Y-%m-%d}",
        last=f"{last_day(use.ends):%Y-%m-%d}",
        action=action_text(use.action),
        amount=sum_to_credits(use.amount_micro),
        spent=sum_to_credits(use.spent_micro),
        committed=sum_to_credits(use.committed_micro),
        left=sum_to_credits(use.left_micro),
        stops_at=sum_to_credits(use.stop_micro),
        stop_percent=STOPS_AT[use.action],
        percent=use.used_micro * ALL_PERCENT // use.amount_micro,
        kind=kind,
        state=_(state).format(percent=bound),
        is_open=use.state is BudgetState.OPEN,
        stops=use.promisable_micro <= 0,
    )


def budget_notice(tenant_id: int, book: str, at: datetime) -> BudgetText | None:
    """Return a budget that needs a notice (used to 80 % or more), else None."""
    left = credit_left(book, [tenant_id], at).get(tenant_id)
    if left is None or left.period is None:
        return None
    shown = budget_text(left.period)
    if shown.is_open and not shown.stops:
        return None
    return replace(shown, run_out=_run_out(period_run_out(tenant_id, book, at, left.period)))


def account_context(state: CreditRow) -> dict[str, Any]:
    """Return a tenant's credit, how much of it rounds may still promise, and its budget."""
    return {
        "state": state,
        "left": state.promisable,
        "budget": budget_text(state.use) if state.use else None,
    }


def run_out_text(state: CreditRow) -> str:
    """Return when the budget runs out, or why that cannot be estimated; empty without a budget."""
    projected = run_out(state)
    return "" if projected is None else _run_out(projected)


def _run_out(projected: RunOut) -> str:
    if projected.on is None:
        return projected.reason
    return _("On {day}. {reason}").format(day=projected.on, reason=projected.reason)
