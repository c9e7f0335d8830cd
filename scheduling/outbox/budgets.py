"""Messages of budgets of which 80 % or 100 % is spent or committed."""

from collections.abc import Mapping
from datetime import datetime

from evenshare_core.money.budgets import FULL_PERCENT, NOTICE_PERCENT, BudgetState
from evenshare_core.money.fixed_point import sum_to_credits
from scheduling.models import MessageKind, Subscription
from scheduling.outbox.gather import announce
from tenants.scopes import site_scope
from tenants.selectors.credit import USED_UP, budgets_in


def announce_budgets(pool_now: Mapping[str, datetime], *, now: datetime) -> int:
    """Announce budgets whose use has reached a step; return the number of messages.

    Each step of a budget in a period is announced once, and again if the budget's amount changes.
    `pool_now`: pool time by book. A query for each such budget.
    """
    with site_scope():
        wanted = Subscription.objects.filter(
            state=Subscription.State.ACTIVE, kinds__contains=[MessageKind.BUDGET_REACHED.value]
        )
        if not wanted.exists():
            return 0
        made = 0
        for budget, use in budgets_in((BudgetState.NOTICE, *USED_UP), pool_now):
            percent = FULL_PERCENT if use.state in USED_UP else NOTICE_PERCENT
            made += announce(
                MessageKind.BUDGET_REACHED,
                tenant_id=budget.tenant_id,
                event=f"budget:{budget.pk}:{use.begins:%Y-%m-%d}:{use.amount_micro}:{percent}",
                data={
                    "tenant": budget.tenant.slug,
                    "percent": percent,
                    "used": f"{sum_to_credits(use.used_micro):.2f}",
                    "amount": f"{sum_to_credits(use.amount_micro):.2f}",
                    "ends": f"{use.last_day:%Y-%m-%d}",
                },
                at=pool_now[budget.book],
                now=now,
            )
    return made
