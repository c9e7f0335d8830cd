"""Pools as the quota commands see them: their time, their live GPUs, their next round."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Sum

from scheduling.engine.clock import read_clock
from scheduling.models import GpuType, Node, Pool
from tenants.services.quota_files import PoolToday


def pools_today(names: Iterable[str] | None) -> dict[str, PoolToday]:
    """Return pools by name (None: all); names without a pool are left out."""
    rows = Pool.objects.select_related("fence").order_by("name")
    if names is not None:
        rows = rows.filter(name__in=list(names))
    return {
        pool.name: PoolToday(
            pool.pk,
            pool.name,
            pool.book,
            read_clock(pool.pk).pool_at,
            _capacity(pool.pk),
            pool.fence.next_round,
        )
        for pool in rows
    }


def _capacity(pool_id: int) -> dict[str, int]:
    """GPUs of the nodes that are up, by type: what effective quotas are scaled to."""
    nodes = Node.objects.filter(pool_id=pool_id, state=Node.State.UP)
    return dict(nodes.values_list("gpu_type__name").annotate(Sum("gpus")).order_by())


def types_by_name() -> dict[str, int]:
    """Return the ids of GPU types by name."""
    return dict(GpuType.objects.values_list("name", "id"))
