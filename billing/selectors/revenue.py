"""How the income of a pool's tenants stands to their quotas: revenue fairness over time.

Nothing here writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from django.db import connection

from billing.models import MeterCursor
from billing.selectors.contribution import HOUR
from billing.selectors.quota_use import quota_steps
from billing.selectors.statements import Given
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.quota_use import EntitledStep, quota_time
from evenshare_core.money.revenue import OPERATOR
from evenshare_core.money.revenue_fairness import resource_parts, revenue_fairness
from tenants.scopes import site_reading


class FairnessStep(StrEnum):
    """What one value of alpha over time is about; UTC, weeks begin on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class RevenuePeriod:
    """Income, quota and alpha of all tenants over some settled hours; tenant 0 is the operator.

    `income` in micro-credits. `parts`: of all quota, the mean over GPU types. `alpha`: the part of
    the income over the part of the quota (`evenshare_core.money.revenue_fairness`, with income
    alone as the gain); None where nobody earned, or it had no quota.
    """

    begins_at: datetime
    income: Mapping[int, int]
    parts: Mapping[int, Fraction]
    alpha: Mapping[int, Fraction | None]


@dataclass(frozen=True, slots=True)
class RevenueHistory:
    """The whole of [since, until) as far as it is settled, and each step of it, oldest first."""

    until: datetime
    step: FairnessStep
    whole: RevenuePeriod
    periods: tuple[RevenuePeriod, ...]


def revenue_history(
    pool_id: int, *, since: datetime, until: datetime, step: FairnessStep
) -> RevenueHistory | None:
    """Return income and alpha of all tenants in [since, until); None where nothing is settled.

    A settled hour counts at its end, as its transfers do, and so does the quota of that hour.
    Steps in which nobody had quota or income are left out. Three queries.
    """
    with site_reading():
        cursor = MeterCursor.objects.filter(pool_id=pool_id)
        settled = cursor.values_list("settled_until", flat=True).first()
        if settled is None or settled < since:
            return None
        ends_at = min(until - HOUR, settled)
        quotas = quota_steps(pool_id, since - HOUR, ends_at)
        incomes = _incomes(pool_id, since - HOUR, ends_at, step)
    total: dict[int, int] = defaultdict(int)
    for income in incomes.values():
        for tenant, amount in income.items():
            total[tenant] += amount
    periods = []
    for begins_at in _beginnings(since, ends_at + HOUR, step):
        hours = (max(begins_at, since), min(_following(begins_at, step), ends_at + HOUR))
        period = _period(begins_at, incomes.get(begins_at, {}), quotas, hours)
        if period.income or any(period.parts.values()):
            periods.append(period)
    whole = _period(since, total, quotas, (since, ends_at + HOUR))
    return RevenueHistory(ends_at + HOUR, step, whole, tuple(periods))


def fairness_step(since: datetime, until: datetime) -> FairnessStep:
    """Return the step by which a stretch of time has some tens of values."""
    span = until - since
    if span <= timedelta(days=2):
        return FairnessStep.HOUR
    if span <= timedelta(days=70):
        return FairnessStep.DAY
    return FairnessStep.WEEK if span <= timedelta(days=400) else FairnessStep.MONTH


_INCOMES = """
    SELECT date_trunc(%(step)s, transfer.effective_at, 'UTC'), account.tenant_id,
           sum(entry.amount)
    FROM billing_transfer transfer
    JOIN billing_entry entry ON entry.transfer_id = transfer.id AND entry.amount > 0
    JOIN billing_account account ON account.id = entry.account_id
    WHERE transfer.pool_id = %(pool)s AND transfer.code = 'usage'
      AND transfer.hour >= %(since)s AND transfer.hour < %(until)s
    GROUP BY 1, 2
"""


def _incomes(
    pool_id: int, since: datetime, until: datetime, step: FairnessStep
) -> dict[datetime, dict[int, int]]:
    """Income in micro-credits by step and tenant."""
    incomes: dict[datetime, dict[int, int]] = defaultdict(dict)
    given: Given = {"pool": pool_id, "since": since, "until": until, "step": step.value}
    with connection.cursor() as cursor:
        cursor.execute(_INCOMES, given)
        for begins_at, tenant, amount in cursor.fetchall():
            incomes[begins_at][OPERATOR if tenant is None else tenant] = to_micro(amount)
    return incomes


def _period(
    begins_at: datetime,
    income: Mapping[int, int],
    quotas: Mapping[str, Sequence[EntitledStep]],
    counted: tuple[datetime, datetime],
) -> RevenuePeriod:
    """One period; what counts in it was held an hour before at the latest."""
    since_us, until_us = (to_us(instant - HOUR) for instant in counted)
    by_type = [
        quota_time(steps, since_us=since_us, until_us=until_us)
        for _, steps in sorted(quotas.items())
    ]
    tenants = sorted({*income, *(tenant for times in by_type for tenant in times)})
    rows = {tenant: [times.get(tenant, 0) for times in by_type] for tenant in tenants}
    return RevenuePeriod(begins_at, income, resource_parts(rows), revenue_fairness(income, rows))


def _beginnings(since: datetime, until: datetime, step: FairnessStep) -> list[datetime]:
    """The beginnings of all steps of a stretch of time, the first one's perhaps before it."""
    at = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if step is not FairnessStep.HOUR:
        at = at.replace(hour=0)
    if step is FairnessStep.WEEK:
        at -= timedelta(days=at.weekday())
    if step is FairnessStep.MONTH:
        at = at.replace(day=1)
    beginnings = []
    while at < until:
        beginnings.append(at)
        at = _following(at, step)
    return beginnings


def _following(at: datetime, step: FairnessStep) -> datetime:
    if step is FairnessStep.MONTH:
        return (at + timedelta(days=31)).replace(day=1)
    days = {FairnessStep.DAY: 1, FairnessStep.WEEK: 7}
    return at + (timedelta(days=days[step]) if step in days else HOUR)
