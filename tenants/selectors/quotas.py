"""Queries of tenants with quota, and of pools."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import QuerySet

from tenants.models import Quota


def quotas_in_force(pool_id: int, at: datetime) -> QuerySet[Quota]:
    """Return a pool's quotas in force at an instant of pool time."""
    return Quota.objects.filter(pool_id=pool_id, valid_from__lte=at).exclude(valid_until__lte=at)


def pool_tenants(pool_id: int) -> frozenset[int]:
    """Return the ids of the tenants that have or had quota in a pool."""
    rows = Quota.objects.filter(pool_id=pool_id).values_list("tenant_id", flat=True)
    return frozenset(rows.distinct())


def tenants_of_pools(pool_ids: Collection[int]) -> dict[int, frozenset[int]]:
    """Return the ids of the tenants that have or had quota, by pool, with one query."""
    rows = Quota.objects.filter(pool_id__in=pool_ids).values_list("pool_id", "tenant_id")
    tenants: dict[int, set[int]] = {pool_id: set() for pool_id in pool_ids}
    for pool_id, tenant_id in rows.distinct():
        tenants[pool_id].add(tenant_id)
    return {pool_id: frozenset(ids) for pool_id, ids in tenants.items()}


def pools_of(tenant_id: int) -> list[int]:
    """Return the ids of the pools in which a tenant has or had quota, oldest first."""
    rows = Quota.objects.filter(tenant_id=tenant_id).values_list("pool_id", flat=True)
    return list(rows.distinct().order_by("pool_id"))
