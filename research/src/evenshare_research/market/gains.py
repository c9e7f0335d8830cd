"""Gain-as-you-contribute, equation (2): payments for borrowed schedules, and who receives them.

| paper | here | unit |
|---|---|---|
| c_w(t), c_p(t) | price x workers, price x PSs of a borrowed schedule | micro-credits a slot |
| (q_w^u - own use) / a_w(t) | `MarketRound.idle_workers[u][t]` over their sum | ratio |
| rho | `SlotPayment.amount_micro` | micro-credits a slot |
| g_u | `TenantRevenue.gain` of `revenues` | micro-credits |

Quota is idle if its owner does not use it before the shared phase places jobs. A tenant may be one
of the owners and pay itself. Capacity without an owner earns for the operator. In each slot,
workers and PSs are split separately by largest remainder, so that payments sum to the charge. Ties
are decided by tenant id, with the operator last.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.money.revenue.idle import split_amount
from evenshare_core.money.revenue_fairness import TenantRevenue, revenue_fairness
from evenshare_research.market.book import Ints
from evenshare_research.market.model import OPERATOR, MarketJob, MarketPool, MarketSchedule
from evenshare_research.market.rounds import MarketRound, MarketRun


class SlotPayment(NamedTuple):
    """A tenant's payment to an owner for the resources that a job borrows in one slot."""

    slot: int
    job: int
    payer: int
    owner: int
    amount_micro: int


class _Charge(NamedTuple):
    """The cost of one kind of resource for a job in a slot, and the idle amounts by owner."""

    slot: int
    amount_micro: int
    idle: dict[int, int]


def payments(row: MarketRound) -> Iterator[SlotPayment]:
    """Yield the payments of a round's borrowed schedules, slot by slot, without amounts of 0."""
    for schedule in row.borrowed:
        for charge in _charges(row, schedule):
            for owner, amount in split_amount(charge.amount_micro, charge.idle):
                if amount:
                    yield SlotPayment(charge.slot, schedule.job, schedule.tenant, owner, amount)


def _charges(row: MarketRound, schedule: MarketSchedule) -> Iterator[_Charge]:
    kinds = (
        (row.idle_workers, schedule.worker_prices, schedule.worker_count),
        (row.idle_ps, schedule.ps_prices, schedule.ps_count),
    )
    for slot in range(schedule.start, schedule.end + 1):
        for idle, prices, count in kinds:
            amount = prices[slot - schedule.start] * count
            yield _Charge(slot, amount, _idle_at(idle, slot - row.after - 1))


def _idle_at(idle: Mapping[int, Ints], index: int) -> dict[int, int]:
    return {owner: int(column[index]) for owner, column in idle.items() if column[index] > 0}


def revenues(
    pool: MarketPool, jobs: Iterable[MarketJob], run: MarketRun
) -> dict[int, TenantRevenue]:
    """Return the components of each tenant's gain, and of the operator's, in micro-credits.

    Utilities are f(completion - arrival), even if admission used another f.
    """
    known = {job.id: job for job in jobs}
    owners = [row.tenant for row in pool.owners]
    tenants = sorted({*owners, *(job.tenant for job in known.values()), OPERATOR})
    sums = {tenant: dict.fromkeys(("own", "income", "borrowed", "cost"), 0) for tenant in tenants}
    for row in run.rounds:
        for schedule in row.schedules:
            mine = sums[schedule.tenant]
            value = true_utility_micro(known[schedule.job], schedule)
            mine["borrowed" if schedule.borrowed else "own"] += value
            mine["cost"] += schedule.cost_micro if schedule.borrowed else 0
        for payment in payments(row):
            sums[payment.owner]["income"] += payment.amount_micro
    return {
        tenant: TenantRevenue(one["own"], one["income"], one["borrowed"], one["cost"])
        for tenant, one in sums.items()
    }


def true_utility_micro(job: MarketJob, schedule: MarketSchedule) -> int:
    """Return f(completion - arrival) in micro-credits."""
    return job.utility_micro(schedule.end - job.arrival)


def fairness_of(pool: MarketPool, rows: Mapping[int, TenantRevenue]) -> dict[int, Fraction | None]:
    """Return each owner's alpha: its share of all utilities divided by its share of the quotas."""
    gains = {tenant: row.gain for tenant, row in rows.items()}
    quotas = {row.tenant: (row.workers, row.ps) for row in pool.owners}
    return revenue_fairness(gains, quotas, total=sum(gains.values(), Fraction(0)))
