"""Job types of tenants with their speeds, for pages and the API."""

from collections.abc import Collection

from django.db.models import Count, Q

from scheduling.models import GpuType, Job, Profile

ACTIVE = Q(jobs__state__in=Job.ACTIVE_STATES)


def list_profiles(pool_id: int, tenants: Collection[int] | None) -> list[Profile]:
    """Return the job types of `tenants` in a pool, by tenant and name; of all if None.

    Their `active` counts their waiting and running jobs. A single query.
    """
    rows = Profile.objects.filter(pool_id=pool_id).select_related("tenant")
    if tenants is not None:
        rows = rows.filter(tenant_id__in=tenants)
    rows = rows.annotate(active=Count("jobs", filter=ACTIVE))
    return list(rows.order_by("tenant__slug", "name"))


def pool_types(pool_id: int) -> list[str]:
    """Return the GPU types of a pool's nodes, slowest first. A single query."""
    types = GpuType.objects.filter(node__pool_id=pool_id).distinct()
    return list(types.order_by("rank", "name").values_list("name", flat=True))


def first_profiled(tenant_id: int) -> str:
    """Return the name of the oldest pool in which a tenant has job types, or "". A single query."""
    rows = Profile.objects.filter(tenant_id=tenant_id).order_by("pool_id")
    return rows.values_list("pool__name", flat=True).first() or ""
