"""The clocks and nodes of pools, for planning the changes of a quota file in `tenants`."""

from collections.abc import Iterable

from scheduling.engine.clock import read_clock
from scheduling.models import Pool
from scheduling.selectors.pools.capacity import type_capacities
from tenants.services.quota_files import PoolToday


def pools_today(names: Iterable[str] | None) -> dict[str, PoolToday]:
    """Return pools by name, or all pools if `names` is None; unknown names are left out."""
    rows = Pool.objects.select_related("fence").order_by("name")
    if names is not None:
        rows = rows.filter(name__in=list(names))
    return {
        pool.name: PoolToday(
            pool.pk,
            pool.name,
            pool.book,
            read_clock(pool.pk).pool_at,
            {one.name: one.gpus for one in type_capacities(pool.pk) if one.gpus},
            pool.fence.next_round,
        )
        for pool in rows
    }
