"""The credits that rounds may still promise: the stricter of credit limit and period's budget.

Rounds, dry runs and pages call the same function, so that they agree.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from django.db.models import Min, Q

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.budgets import (
    BudgetAction,
    BudgetPeriod,
    BudgetState,
    budget_state,
    calendar_period,
    stop_micro,
)
from evenshare_core.money.fixed_point import LIMIT_MICRO, sum_to_credits, to_micro
from tenants.models import Budget, DailySpend


@dataclass(frozen=True, slots=True)
class PeriodUse:
    """A budget in its current period: amounts in micro-credits, times in pool time.

    `spent`: settled charges of its days. `committed`: reserved credits, except unsettled charges of
    earlier days. Running terms count in the period in which they will end.
    """

    kind: BudgetPeriod
    action: BudgetAction
    begins: datetime
    ends: datetime
    amount_micro: int
    spent_micro: int
    committed_micro: int

    @property
    def last_day(self) -> date:
        return last_day(self.ends)

    @property
    def used_micro(self) -> int:
        """Return spent and committed."""
        return self.spent_micro + self.committed_micro

    @property
    def left_micro(self) -> int:
        """Return the amount that is neither spent nor committed; negative if it is exceeded."""
        return self.amount_micro - self.used_micro

    @property
    def stop_micro(self) -> int:
        """Return the amount, spent and committed, at which rounds stop promising credits."""
        return stop_micro(self.amount_micro, self.action)

    @property
    def promisable_micro(self) -> int:
        """Return the amount that rounds may still promise by this budget."""
        return self.stop_micro - self.used_micro

    @property
    def state(self) -> BudgetState:
        """Return the budget's state, by how much of it is used."""
        return budget_state(self.amount_micro, self.used_micro)


@dataclass(frozen=True, slots=True)
class CreditLeft:
    """A tenant's remaining credit in a book, in micro-credits; None is no limit.

    `credit_micro` is what the credit limit leaves; `period` is the current budget, if any.
    `storable_micro` is a technical limit: the amount that still fits the database's columns.
    """

    credit_micro: int | None = None
    period: PeriodUse | None = None
    storable_micro: int = LIMIT_MICRO - 1

    @property
    def micro(self) -> int | None:
        """Return the smallest of the limits."""
        of_period = None if self.period is None else self.period.promisable_micro
        limits = [limit for limit in (self.credit_micro, of_period) if limit is not None]
        return min(limits) if limits else None

    @property
    def credits(self) -> Decimal | None:
        """Return the smallest of the limits in credits."""
        return None if self.micro is None else sum_to_credits(self.micro)


def credit_left(
    book: str, tenant_ids: Collection[int], at: datetime, *, lock: bool = False
) -> dict[int, CreditLeft]:
    """Return the remaining credit at an instant of pool time, by tenant.

    Takes one query, or two if a budget applies. `lock` locks the budgets, for callers that reserve
    credit. They are locked in tenant order, as in metering and the ledger.
    """
    rows = Budget.objects.filter(book=book, tenant_id__in=tenant_ids).order_by("tenant_id")
    budgets = list(rows.select_for_update() if lock else rows)
    periods = _periods(budgets, at)
    charged = charges_of_periods(book, periods)
    return {
        budget.tenant_id: CreditLeft(
            _credit(budget), _use(budget, periods.get(budget.tenant_id), charged), _storable(budget)
        )
        for budget in budgets
    }


USED_UP = (BudgetState.FULL, BudgetState.STOPPED)


def used_up_budgets(now: Mapping[str, datetime]) -> list[tuple[Budget, PeriodUse]]:
    """Return the budgets whose current period is completely spent or committed (`budgets_in`)."""
    return budgets_in(USED_UP, now)


def budgets_in(
    states: Collection[BudgetState], now: Mapping[str, datetime]
) -> list[tuple[Budget, PeriodUse]]:
    """Return the budgets whose current period is in one of these states, with its use.

    They are sorted by tenant and book; `now`: pool time of each book. A single query, and one for
    each book with a current budget.
    """
    rows = Budget.objects.filter(book__in=list(now), period_amount__isnull=False)
    by_book = defaultdict(list)
    for budget in rows.select_related("tenant").order_by("tenant__slug", "book"):
        by_book[budget.book].append(budget)
    current = [row for book, rows in by_book.items() for row in _current(book, rows, now[book])]
    chosen = [row for row in current if row[1].state in states]
    return sorted(chosen, key=lambda row: (row[0].tenant.slug, row[0].book))


def period_at(budget: Budget, at: datetime) -> tuple[datetime, datetime] | None:
    """Return start and end of the budget's period at an instant, or None if there is none."""
    if budget.period_amount is None:
        return None
    kind = BudgetPeriod(budget.period_kind)
    if kind is not BudgetPeriod.CUSTOM:
        return calendar_period(kind, from_us(to_us(at)))
    begins, ends = budget.period_starts_at, budget.period_ends_at
    if begins is None or ends is None or not begins <= at < ends:
        return None
    return begins, ends


@dataclass(slots=True)
class PeriodCharges:
    """Sums in micro-credits: charges of a period's days, and unsettled charges of earlier days."""

    spent: int = 0
    unsettled_before: int = 0


def charges_of_periods(
    book: str, periods: dict[int, tuple[datetime, datetime]]
) -> dict[int, PeriodCharges]:
    """Return each tenant's charges in its period, and its unsettled charges from earlier days."""
    if not periods:
        return {}
    charges: dict[int, PeriodCharges] = defaultdict(PeriodCharges)
    first = min(begins for begins, _ in periods.values())
    rows = DailySpend.objects.filter(
        Q(day__gte=first.date()) | Q(unsettled__gt=0), book=book, tenant_id__in=periods
    )
    for tenant, day, amount, unsettled in rows.values_list(
        "tenant_id", "day", "amount", "unsettled"
    ):
        begins, ends = periods[tenant]
        if day < begins.date():
            charges[tenant].unsettled_before += to_micro(unsettled)
        elif day <= last_day(ends):
            charges[tenant].spent += to_micro(amount)
    return dict(charges)


def last_day(ends: datetime) -> date:
    """Return the last day of a period that ends before `ends`."""
    return from_us(to_us(ends) - 1).date()


def daily_spend(tenant_id: int, book: str, *, before: date, days: int) -> list[int]:
    """Return the spending (micro-credits) on each of the last days before `before`, oldest first.

    The list starts with the first day that has spending, because earlier days are unknown. Two
    queries.
    """
    rows = DailySpend.objects.filter(tenant_id=tenant_id, book=book, day__lt=before)
    earliest = rows.filter(amount__gt=0).aggregate(first=Min("day"))["first"]
    if earliest is None:
        return []
    begin = max(earliest, before - timedelta(days=days))
    stored = rows.filter(day__gte=begin).values_list("day", "amount")
    known = {day: to_micro(amount) for day, amount in stored}
    span = (before - begin).days
    return [known.get(begin + timedelta(days=offset), 0) for offset in range(span)]


def _periods(budgets: Iterable[Budget], at: datetime) -> dict[int, tuple[datetime, datetime]]:
    periods = ((budget.tenant_id, period_at(budget, at)) for budget in budgets)
    return {tenant_id: period for tenant_id, period in periods if period is not None}


def _current(book: str, budgets: list[Budget], at: datetime) -> list[tuple[Budget, PeriodUse]]:
    periods = _periods(budgets, at)
    charged = charges_of_periods(book, periods)
    uses = [(budget, _use(budget, periods.get(budget.tenant_id), charged)) for budget in budgets]
    return [(budget, use) for budget, use in uses if use is not None]


def _credit(budget: Budget) -> int | None:
    if budget.credit_limit is None:
        return None
    # Each day's sum fits its column, but the total of all days might not.
    credit_micro = to_micro(budget.spendable) + to_micro(budget.credit_limit)
    return credit_micro - to_micro(budget.reserved)


def _storable(budget: Budget) -> int:
    most_micro = LIMIT_MICRO - 1
    return most_micro + min(0, to_micro(budget.spendable)) - to_micro(budget.reserved)


def _use(
    budget: Budget, period: tuple[datetime, datetime] | None, charged: dict[int, PeriodCharges]
) -> PeriodUse | None:
    if period is None or budget.period_amount is None:
        return None
    begins, ends = period
    charges = charged.get(budget.tenant_id, PeriodCharges())
    return PeriodUse(
        kind=BudgetPeriod(budget.period_kind),
        action=BudgetAction(budget.period_action),
        begins=begins,
        ends=ends,
        amount_micro=to_micro(budget.period_amount),
        spent_micro=charges.spent,
        committed_micro=to_micro(budget.reserved) - charges.unsettled_before,
    )
