"""The settings of a pool for operators, read together, and locked before a change."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from django.db.models import QuerySet

from evenshare_core.policies import registry
from evenshare_core.policies.options import OptionError
from scheduling.models import GpuType, Pool, PoolClock, PriceSetting
from scheduling.selectors.rounds.states import posted_rows
from tenants.answers import Answer, answer_of, formatted_as, plain

Factor = Annotated[Decimal, formatted_as("{:.3f}".format, pattern=r"^[0-9]+\.[0-9]{3}$")]
Percent = Annotated[Decimal, formatted_as("{:.1f}".format, pattern=r"^[0-9]+\.[0-9]$")]


class PriceTerms(Answer, frozen=True):
    """Price of a GPU-hour: base x (theta^(used / GPUs) - 1), plus a surcharge for the queue.

    `surcharge_cap`: the maximum surcharge, in multiples of the base; 0 means no surcharge.
    `surcharge_step`: the largest change per round, in percent of the base.
    """

    base: Decimal
    theta: Factor
    surcharge_cap: Factor
    surcharge_step: Percent


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A pool with its clock, its options with their defaults, and the price of each GPU type."""

    pool: Pool
    clock: PoolClock
    options: Mapping[str, Any]
    prices: Mapping[str, PriceSetting]


def pool_settings(name: str, *, lock: bool = False) -> PoolSettings | None:
    """Return a pool's settings, or None if it does not exist.

    With `lock`, they cannot change until the transaction ends: the pool is locked first, then its
    clock, then its prices.
    """
    pools, clocks, rows = Pool.objects.all(), PoolClock.objects.all(), PriceSetting.objects.all()
    if lock:
        pools = pools.select_for_update(no_key=True)
        clocks = clocks.select_for_update(no_key=True)
        rows = rows.select_for_update(no_key=True, of=("self",))
    pool = pools.filter(name=name).first()
    if pool is None:
        return None
    clock = clocks.get(pool_id=pool.pk)
    return PoolSettings(pool, clock, read_options(pool), _prices(pool.pk, rows))


def price_settings(pool_id: int) -> dict[str, PriceSetting]:
    """Return the price setting of each GPU type of a pool's nodes, slowest type first.

    A type without a setting has the default. Two queries.
    """
    return _prices(pool_id, PriceSetting.objects.all())


def posted_use(pool_id: int) -> dict[str, tuple[int, int]]:
    """Return (GPUs in use, total GPUs) by type, from the last posted prices."""
    return {row["gpu_type"]: (row["used"], row["capacity"]) for row in posted_rows(pool_id)}


def price_terms(row: PriceSetting) -> dict[str, str]:
    """Return a price setting as texts, by field name."""
    terms: dict[str, str] = plain(answer_of(PriceTerms, row))
    return terms


def _prices(pool_id: int, rows: QuerySet[PriceSetting]) -> dict[str, PriceSetting]:
    in_pool = rows.filter(pool_id=pool_id).select_related("gpu_type").order_by("id")
    set_by_name = {row.gpu_type.name: row for row in in_pool}
    types = GpuType.objects.filter(node__pool_id=pool_id).distinct().order_by("rank", "name")
    return {one.name: set_by_name.get(one.name) or PriceSetting(gpu_type=one) for one in types}


def read_options(pool: Pool) -> dict[str, Any]:
    """Return the stored options, with defaults for those that are not set."""
    try:
        options: dict[str, Any] = msgspec.to_builtins(registry.options(pool.policy, pool.options))
    except (registry.UnknownPolicyError, OptionError):
        return dict(pool.options)
    return options
