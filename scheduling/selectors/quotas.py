"""Quotas by key, newest first; and pools as a file of quotas is planned for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from scheduling.models import Pool
from scheduling.selectors.capacity import type_capacities
from tenants.models import Quota
from tenants.services.quota_files import PoolToday


def list_quotas(
    tenants: Collection[int] | None, *, pool: str, before: int | None, limit: int
) -> tuple[list[Quota], bool]:
    """Return quotas of some tenants (None: all) and whether there are more. One query."""
    rows = Quota.objects.select_related("tenant", "pool", "gpu_type").order_by("-id")
    if tenants is not None:
        rows = rows.filter(tenant__in=list(tenants))
    if pool:
        rows = rows.filter(pool__name=pool)
    if before is not None:
        rows = rows.filter(id__lt=before)
    page = list(rows[: limit + 1])
    return page[:limit], len(page) > limit


def pools_today(
    names: Iterable[str] | None, *, pool_now: Callable[[int], datetime]
) -> dict[str, PoolToday]:
    """Return pools by name (None: all); names without a pool are left out.

    `pool_now` gives the present of a pool by its id. Two queries a pool, and one.
    """
    rows = Pool.objects.select_related("fence").order_by("name")
    if names is not None:
        rows = rows.filter(name__in=list(names))
    return {
        pool.name: PoolToday(
            pool.pk,
            pool.name,
            pool.book,
            pool_now(pool.pk),
            {one.name: one.gpus for one in type_capacities(pool.pk) if one.gpus},
            pool.fence.next_round,
        )
        for pool in rows
    }
