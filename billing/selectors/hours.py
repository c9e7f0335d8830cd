"""An account's income and payments per hour, for a chart. Read-only."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from billing.selectors.accounts import ZERO, Earnings, account_of
from billing.selectors.events import hour_of
from tenants.scopes import site_reading
from tenants.sql import fetch_rows


@dataclass(frozen=True, slots=True)
class AccountHour(Earnings):
    """An hour of pool time: income from lending and cost of borrowing, settled or not."""

    hour: datetime
    earned: Decimal
    paid: Decimal


_PAID = """
SELECT line.hour, sum(line.amount)
FROM billing_usageline line
JOIN scheduling_pool pool ON pool.id = line.pool_id
WHERE line.tenant_id = %s AND pool.book = %s AND line.hour >= %s
GROUP BY line.hour
"""
_EARNED = """
SELECT hour, sum(amount) FROM billing_usageshare WHERE account_id = %s AND hour >= %s GROUP BY hour
"""


def account_hours(tenant_id: int, book: str, *, since: datetime) -> list[AccountHour]:
    """Return a tenant's hours with income or cost since the hour of an instant, in order.

    Their sums equal those of `account_summary` over the same time. Three queries.
    """
    first = hour_of(since)
    sums: dict[datetime, list[Decimal]] = defaultdict(lambda: [ZERO, ZERO])
    account = account_of(tenant_id, book)
    for hour, amount in fetch_rows(_PAID, [tenant_id, book, first]):
        sums[hour][1] += amount
    if account is not None:
        # A lender's shares belong to other tenants' lines.
        with site_reading():
            for hour, amount in fetch_rows(_EARNED, [account.pk, first]):
                sums[hour][0] += amount
    return [
        AccountHour(hour, earned, paid)
        for hour, (earned, paid) in sorted(sums.items())
        if earned or paid
    ]
