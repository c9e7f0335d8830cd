"""Test the credit a tenant may still promise: the lower of what credit limit and budget leave."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from evenshare_core.money.budgets import BudgetAction, BudgetPeriod
from tenants.selectors.credit import CreditLeft, PeriodUse

BEGINS, ENDS = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 2, 1, tzinfo=UTC)


def budget(amount_micro: int, action: BudgetAction = BudgetAction.BLOCK) -> PeriodUse:
    return PeriodUse(BudgetPeriod.MONTH, action, BEGINS, ENDS, amount_micro, 30, 10)


@pytest.mark.parametrize(
    ("credit_micro", "period", "left"),
    [
        (None, None, None),
        (5, None, 5),
        (None, budget(100), 60),
        (50, budget(100), 50),
        (70, budget(100), 60),
        (-1, budget(100), -1),
        (500, budget(100, BudgetAction.WARN), 80),
        (500, budget(20), -20),
    ],
)
def test_credit_left_is_stricter_of_limit_and_budget(
    credit_micro: int | None, period: PeriodUse | None, left: int | None
) -> None:
    assert CreditLeft(credit_micro, period).micro == left
