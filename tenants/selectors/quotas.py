"""Who has or had quota where."""

from __future__ import annotations

from tenants.models import Quota


def pool_tenants(pool_id: int) -> frozenset[int]:
    """Ids of the tenants that have or had quota in a pool."""
    rows = Quota.objects.filter(pool_id=pool_id).values_list("tenant_id", flat=True)
    return frozenset(rows.distinct())


def pools_of(tenant_id: int) -> list[int]:
    """Ids of the pools in which a tenant has or had quota, oldest first."""
    rows = Quota.objects.filter(tenant_id=tenant_id).values_list("pool_id", flat=True)
    return list(rows.distinct().order_by("pool_id"))
