"""The prices that a round posts: eq.

(8) of Astraea-online for the GPUs in use after the round. If the operator allows it, GPUs queued
for borrowing add a surcharge (ADR 0165). The state of the surcharge is part of the posted row, so
that a snapshot determines the next surcharge.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import PoolPrice, Surcharge
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.money.pricing import (
    next_surcharge_micro,
    posted_price_micro,
    surcharge_target_micro,
)
from evenshare_core.units import ONE_MILLI

_posted_price = lru_cache(maxsize=65_536)(posted_price_micro)
_target = lru_cache(maxsize=65_536)(surcharge_target_micro)

Claim = tuple[int, str]  # (tenant, GPU type)


def post_prices(
    rows: Iterable[PoolPrice],
    used: Mapping[str, int],
    capacity: Mapping[str, int],
    surcharges: Iterable[Surcharge] = (),
) -> tuple[PoolPrice, ...]:
    """Return the prices of the next round by GPU type, from used GPUs and capacity by type.

    `surcharges`: the surcharges of the next round, which the prices include.
    """
    extra = {row.gpu_type: row.surcharge_micro for row in surcharges}
    posted = []
    for row in sorted(rows, key=lambda row: row.gpu_type):
        use_now, all_now = used.get(row.gpu_type, 0), capacity.get(row.gpu_type, 0)
        price = _posted_price(row.base_micro, row.theta_milli, use_now, all_now)
        price += extra.get(row.gpu_type, 0)
        posted.append(
            PoolPrice(row.gpu_type, price, use_now, all_now, row.base_micro, row.theta_milli)
        )
    return tuple(posted)


def next_surcharges(
    rows: Iterable[Surcharge],
    prices: Iterable[PoolPrice],
    *,
    used: Mapping[str, int],
    queued: Mapping[str, int],
    capacity: Mapping[str, int],
    elapsed_us: int,
    round_us: int,
) -> tuple[Surcharge, ...]:
    """Return the surcharges of the next round by GPU type, from those of this round.

    `used`, `queued`, `capacity`: GPUs by type after this round. Each surcharge moves towards its
    target by at most one step. A round that comes early moves it by a proportional part of a step,
    so that rounds on demand do not move prices faster. With `round_us` 0, each round is a full
    step.
    """
    settings = {row.gpu_type: row for row in prices}
    moved = []
    for row in sorted(rows, key=lambda row: row.gpu_type):
        price, name = settings[row.gpu_type], row.gpu_type
        step_micro = price.base_micro * row.step_milli // ONE_MILLI
        if elapsed_us < round_us:
            step_micro = step_micro * max(0, elapsed_us) // round_us
        target_micro = _target(
            price.base_micro, price.theta_milli, used.get(name, 0), capacity.get(name, 0),
            queued=queued.get(name, 0), cap_milli=row.cap_milli,
        )  # fmt: skip # rows of what belongs together
        surcharge_micro = next_surcharge_micro(
            row.surcharge_micro,
            target_micro,
            step_micro=step_micro,
            cap_micro=price.base_micro * row.cap_milli // ONE_MILLI,
        )
        moved.append(
            Surcharge(name, row.step_milli, row.cap_milli, queued.get(name, 0), surcharge_micro)
        )
    return tuple(moved)


def queued_for_borrowing(
    waiting: Iterable[tuple[Job, str]],
    *,
    entitlements: Mapping[Claim, Entitlement],
    use: Callable[[int, str], tuple[int, int]],
    spendable: Callable[[int], int | None],
    prices: Mapping[str, int],
    capacity: Mapping[str, int],
    lease_us: int,
) -> dict[str, int]:
    """Return the GPUs, by type, that tenants would borrow at the current prices for waiting jobs.

    `waiting`: jobs that may start and hold no GPUs after the round, each with its claimed type.
    `use` returns the own and borrowed GPUs of a tenant's leases after the round. `spendable`
    returns the micro-credits that a tenant may still commit, None if unlimited. A tenant would
    borrow what its jobs need beyond its unused quota, up to its borrow limit and its credit for one
    lease. Jobs whose maximum price is below the price, or that are larger than all GPUs of the
    type, are left out. The order of the jobs makes no difference.
    """
    needs: dict[Claim, int] = {}
    for job, gpu_type in waiting:
        price_micro = prices.get(gpu_type, 0)
        is_too_dear = job.max_price_micro is not None and job.max_price_micro < price_micro
        if not is_too_dear and job.gpus <= capacity.get(gpu_type, 0):
            key = (job.tenant, gpu_type)
            needs[key] = needs.get(key, 0) + job.gpus
    queued: dict[str, int] = {}
    for (tenant, gpu_type), gpus in needs.items():
        own, borrowed = use(tenant, gpu_type)
        row = entitlements.get((tenant, gpu_type)) or Entitlement(tenant, gpu_type, gpus=0)
        wanted = max(0, gpus - max(0, row.gpus - own))
        if row.may_borrow is not None:
            wanted = min(wanted, max(0, row.may_borrow - borrowed))
        left_micro = spendable(tenant)
        cost_micro = worst_case_micro(1, prices.get(gpu_type, 0), lease_us)
        if left_micro is not None and cost_micro:
            wanted = min(wanted, max(0, left_micro // cost_micro))
        queued[gpu_type] = queued.get(gpu_type, 0) + wanted
    return queued
