"""The rounds that open periods refer to. Their bytes are kept, however old they are."""

from datetime import datetime

from billing.models import MeterCursor
from billing.selectors.clock import book_now
from evenshare_core.money.budgets import BudgetPeriod, calendar_period
from scheduling.models import Pool, PoolFence
from tenants.models import Budget
from tenants.sql import fetch_rows

# The smallest number among: rounds since the instant, rounds whose terms still ran then or have
# usage that counts since then, and the next round.
_CITED = """
SELECT least(
    (SELECT min(number) FROM scheduling_round WHERE pool_id = %(pool)s AND at >= %(since)s),
    (SELECT min(t.round) FROM billing_usageline u
     JOIN scheduling_leaseterm t ON t.lease_id = u.lease_id AND t.number = u.term
     WHERE u.pool_id = %(pool)s AND u.hour >= %(since)s),
    (SELECT min(t.round) FROM scheduling_lease l
     JOIN scheduling_leaseterm t ON t.lease_id = l.id
     WHERE l.pool_id = %(pool)s AND (l.ended_at IS NULL OR l.ended_at >= %(since)s)
       AND t.expires_at >= %(since)s),
    (SELECT next_round FROM scheduling_poolfence WHERE pool_id = %(pool)s)
)
"""


def cited_from(pool: Pool) -> int:
    """Return the first round that an open period of the pool needs; earlier ones may be dropped.

    Open periods are unsettled hours, and budget periods that have not ended. The result is one
    round earlier, because that round posted the prices. Three queries.
    """
    since = open_since(pool)
    if since is None:
        return 0
    number: int
    ((number,),) = fetch_rows(_CITED, {"pool": pool.pk, "since": since})
    return max(0, number - 1)


def open_since(pool: Pool) -> datetime | None:
    """Return the start (pool time) of a book's first open period; None if all rounds are needed."""
    settled = MeterCursor.objects.filter(pool=pool).values_list("settled_until", flat=True).first()
    now = book_now(pool.book)
    if settled is None:
        fence = PoolFence.objects.get(pool=pool)
        # Nothing that could be charged has happened yet.
        settled = now if fence.next_event == 1 else None
    if settled is None:
        return None
    budgets = Budget.objects.filter(book=pool.book, period_amount__isnull=False)
    begins = [begin for budget in budgets if (begin := _begin_of_running(budget, now)) is not None]
    return min([settled, *begins])


def _begin_of_running(budget: Budget, now: datetime) -> datetime | None:
    kind = BudgetPeriod(budget.period_kind)
    if kind is not BudgetPeriod.CUSTOM:
        return calendar_period(kind, now)[0]
    starts, ends = budget.period_starts_at, budget.period_ends_at
    return starts if ends is not None and ends > now else None
