"""Revenue fairness: the income of a pool's tenants relative to their quotas, over time.

Read-only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Annotated

from billing.models import MeterCursor
from billing.selectors.quota_use import quota_steps
from billing.selectors.statements import HOUR, Given
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.utilities import UtilityError, stated_utility
from evenshare_core.money.fixed_point import sum_to_credits, sum_to_micro
from evenshare_core.money.quota_use import EntitledStep, quota_time
from evenshare_core.money.revenue.idle import OPERATOR
from evenshare_core.money.revenue_fairness import resource_parts, revenue_fairness
from tenants.answers import Answer, about
from tenants.scopes import site_reading
from tenants.sql import fetch_rows
from tenants.unreadable import note_unreadable


class FairnessStep(StrEnum):
    """The length of the steps of alpha over time, in UTC; weeks start on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


# The longest range for each step.
STEPS = (
    (timedelta(days=2), FairnessStep.HOUR),
    (timedelta(days=70), FairnessStep.DAY),
    (timedelta(days=400), FairnessStep.WEEK),
)


@dataclass(frozen=True, slots=True)
class RevenuePeriod:
    """Income, quota and alpha of all tenants over some settled hours; tenant 0 is the operator.

    `income` (from lending), `cost` (of borrowing) and `utility` (of completed jobs that declare it)
    are in micro-credits. `unreadable`: jobs whose declared utility is unreadable, which are not
    counted. `parts`: the tenant's part of all quota, the mean over GPU types. `alpha`: the tenant's
    part of all income divided by its part of all quota. `full_alpha`: the same with utility +
    income - cost instead of the income, as in the paper (`evenshare_core.money.revenue_fairness`).
    Both are None if there was nothing to share, or no quota.
    """

    begins_at: datetime
    income: Mapping[int, int]
    cost: Mapping[int, int]
    utility: Mapping[int, int]
    unreadable: Mapping[int, int]
    parts: Mapping[int, Fraction]
    alpha: Mapping[int, Fraction | None]
    full_alpha: Mapping[int, Fraction | None]


class AlphaItem(Answer, frozen=True, rename={"unreadable": "unreadable_jobs"}):
    """A tenant's income and quota; `tenant` is null for the operator's unallocated capacity."""

    tenant: str | None
    earned: Decimal
    income_part: float | None
    quota_part: float
    alpha: float | None
    cost: Annotated[Decimal, about("Paid for borrowing.")]
    utility: Annotated[Decimal, about("Value of its completed jobs with a declared value.")]
    full_alpha: Annotated[float | None, about("alpha with utilities.")]
    unreadable: Annotated[
        int, about("Completed jobs whose utility cannot be read; not in the sums.")
    ]

    @property
    def net_utility(self) -> Decimal:
        """Return the utility of its completed jobs less the cost of borrowing."""
        return self.utility - self.cost


@dataclass(frozen=True, slots=True)
class RevenueHistory:
    """The settled part of [since, until) as a whole, and in steps, oldest first."""

    until: datetime
    step: FairnessStep
    whole: RevenuePeriod
    periods: tuple[RevenuePeriod, ...]


def alpha_item(whole: RevenuePeriod, tenant: int, name: str | None) -> AlphaItem:
    """Return a tenant's income and quota over a whole range."""
    income, total = whole.income.get(tenant, 0), sum(whole.income.values())
    return AlphaItem(
        tenant=name,
        earned=sum_to_credits(income),
        income_part=income / total if total else None,
        quota_part=float(whole.parts[tenant]),
        alpha=_number(whole.alpha.get(tenant)),
        cost=sum_to_credits(whole.cost.get(tenant, 0)),
        utility=sum_to_credits(whole.utility.get(tenant, 0)),
        full_alpha=_number(whole.full_alpha.get(tenant)),
        unreadable=whole.unreadable.get(tenant, 0),
    )


def _number(alpha: Fraction | None) -> float | None:
    return None if alpha is None else float(alpha)


def revenue_history(
    pool_id: int, *, since: datetime, until: datetime, step: FairnessStep | None = None
) -> RevenueHistory | None:
    """Return income and alpha of all tenants in [since, until), or None if nothing is settled.

    A settled hour counts at its end, like its transfers. Its quota, and the utility of jobs that
    completed in it, count at the same time. Steps without any quota or income are left out. If
    `step` is None, one is chosen that gives a few dozen steps. Four queries.
    """
    with site_reading():
        cursor = MeterCursor.objects.filter(pool_id=pool_id)
        settled = cursor.values_list("settled_until", flat=True).first()
        if settled is None or settled < since:
            return None
        ends_at = min(until - HOUR, settled)
        quotas = quota_steps(pool_id, since - HOUR, ends_at)
        step = step or _step_of(quotas, since, ends_at + HOUR)
        sums = _moved(pool_id, since - HOUR, ends_at, step)
        _add_utilities(sums, pool_id, since - HOUR, ends_at, step)
    total = _PeriodSums()
    for part in sums.values():
        total.add(part)
    periods = []
    for begins_at in _beginnings(_first(sums, quotas, since), ends_at + HOUR, step):
        hours = (max(begins_at, since), min(_following(begins_at, step), ends_at + HOUR))
        period = _period(begins_at, sums.get(begins_at, _PeriodSums()), quotas, hours)
        if period.income or any(period.parts.values()):
            periods.append(period)
    whole = _period(since, total, quotas, (since, ends_at + HOUR))
    return RevenueHistory(ends_at + HOUR, step, whole, tuple(periods))


def _step_of(
    quotas: Mapping[str, Sequence[EntitledStep]], since: datetime, until: datetime
) -> FairnessStep:
    first_us = min((steps[0].at_us for steps in quotas.values()), default=to_us(since))
    span = until - max(since, from_us(first_us))
    for most, step in STEPS:
        if span <= most:
            return step
    return FairnessStep.MONTH


def _first(
    sums: Mapping[datetime, _PeriodSums],
    quotas: Mapping[str, Sequence[EntitledStep]],
    since: datetime,
) -> datetime:
    """Return the first instant with a quota or an amount, but not before `since`.

    The requested range may start decades before the pool; no steps are made for that time.
    """
    held = (from_us(steps[0].at_us) + HOUR for steps in quotas.values() if steps)
    first = min((*sums, *held), default=since)
    return max(since, first)


_MOVED = """
    SELECT date_trunc(%(step)s, transfer.effective_at, 'UTC'), account.tenant_id,
           coalesce(sum(entry.amount) FILTER (WHERE entry.amount > 0), 0.000000),
           coalesce(-sum(entry.amount) FILTER (WHERE entry.amount < 0), 0.000000)
    FROM billing_transfer transfer
    JOIN billing_entry entry ON entry.transfer_id = transfer.id
    JOIN billing_account account ON account.id = entry.account_id
    WHERE transfer.pool_id = %(pool)s AND transfer.code = 'usage'
      AND transfer.hour >= %(since)s AND transfer.hour < %(until)s
    GROUP BY 1, 2
"""
# Jobs that completed in an hour count at its end, like its transfers.
_COMPLETED = """
    SELECT date_trunc(%(step)s, date_trunc('hour', job.ended_at, 'UTC') + interval '1 hour', 'UTC'),
           job.tenant_id, job.uid, job.utility::text,
           coalesce(job.eligible_at, job.submitted_at), job.ended_at,
           (SELECT coalesce(sum(line.gpus * (extract(epoch FROM line.ends_at - line.starts_at)
                                             * 1000000)::bigint), 0)
            FROM billing_usageline line WHERE line.job_id = job.id)::bigint
    FROM scheduling_job job
    WHERE job.pool_id = %(pool)s AND job.state = 'succeeded' AND job.utility IS NOT NULL
      AND job.ended_at >= %(since)s AND job.ended_at < %(until)s
"""


@dataclass(slots=True)
class _PeriodSums:
    """Micro-credits by tenant: income from lending, cost of borrowing, utility of completed jobs.

    `unreadable`: completed jobs with unreadable utility.
    """

    income: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    cost: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    utility: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    unreadable: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: _PeriodSums) -> None:
        for name in ("income", "cost", "utility", "unreadable"):
            for tenant, amount in getattr(other, name).items():
                getattr(self, name)[tenant] += amount

    def gains(self) -> dict[int, int]:
        """Return g_u: utilities of the tenant's jobs plus income less cost."""
        tenants = {*self.income, *self.cost, *self.utility}
        return {
            one: self.utility.get(one, 0) + self.income.get(one, 0) - self.cost.get(one, 0)
            for one in tenants
        }


def _moved(
    pool_id: int, since: datetime, until: datetime, step: FairnessStep
) -> dict[datetime, _PeriodSums]:
    sums: dict[datetime, _PeriodSums] = defaultdict(_PeriodSums)
    given: Given = {"pool": pool_id, "since": since, "until": until, "step": step.value}
    for begins_at, tenant, earned, paid in fetch_rows(_MOVED, given):
        party = OPERATOR if tenant is None else tenant
        if earned:
            sums[begins_at].income[party] = sum_to_micro(earned)
        if paid:
            sums[begins_at].cost[party] = sum_to_micro(paid)
    return sums


def _add_utilities(
    sums: dict[datetime, _PeriodSums],
    pool_id: int,
    since: datetime,
    until: datetime,
    step: FairnessStep,
) -> None:
    """Add the utilities of completed jobs to their tenants; count unreadable ones."""
    unreadable: dict[str, str] = {}
    given: Given = {"pool": pool_id, "since": since, "until": until, "step": step.value}
    for begins_at, tenant, uid, raw, arrived_at, ended_at, gpu_us in fetch_rows(_COMPLETED, given):
        try:
            utility = stated_utility(0, json.loads(raw))
        except UtilityError as error:
            unreadable[str(uid)] = str(error)
            sums[begins_at].unreadable[tenant] += 1
            continue
        if utility is None:
            continue
        after_us = max(1, to_us(ended_at) - to_us(arrived_at))
        sums[begins_at].utility[tenant] += utility.value_micro(after_us, gpu_us)
    note_unreadable("value of a job", unreadable)


def _period(
    begins_at: datetime,
    sums: _PeriodSums,
    quotas: Mapping[str, Sequence[EntitledStep]],
    counted: tuple[datetime, datetime],
) -> RevenuePeriod:
    """Return a period of steps; GPU-time counts up to an hour after it was held."""
    since_us, until_us = (to_us(instant - HOUR) for instant in counted)
    by_type = [
        quota_time(steps, since_us=since_us, until_us=until_us)
        for _, steps in sorted(quotas.items())
    ]
    gains = sums.gains()
    tenants = sorted({*gains, *(tenant for times in by_type for tenant in times)})
    rows = {tenant: [times.get(tenant, 0) for times in by_type] for tenant in tenants}
    has_utilities = bool(sums.utility)
    return RevenuePeriod(
        begins_at,
        sums.income,
        sums.cost,
        sums.utility,
        sums.unreadable,
        resource_parts(rows),
        revenue_fairness(sums.income, rows),
        revenue_fairness(gains, rows) if has_utilities else dict.fromkeys(tenants),
    )


def _beginnings(since: datetime, until: datetime, step: FairnessStep) -> list[datetime]:
    """Return the starts of all steps of a range; the first step may start before the range."""
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
