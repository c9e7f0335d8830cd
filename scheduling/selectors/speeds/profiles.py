"""Job types of tenants with their speeds, as pages and the API show them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Count, Q

from scheduling.models import GpuType, Job, Profile

ACTIVE = Q(jobs__state__in=Job.ACTIVE_STATES)


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One job type; `active` counts its jobs that wait or run."""

    profile: Profile
    active: int

    def speed_milli(self, gpu_type: str) -> int | None:
        """Thousandths of its speed on its slowest type; None where it cannot run."""
        speed: int | None = self.profile.speedups.get(gpu_type)
        return speed


def list_profiles(pool_id: int, tenants: Collection[int] | None) -> list[ProfileRow]:
    """Return the job types of tenants (None: all) in a pool, by tenant and name. One query."""
    rows = Profile.objects.filter(pool_id=pool_id).select_related("tenant")
    if tenants is not None:
        rows = rows.filter(tenant_id__in=tenants)
    rows = rows.annotate(active=Count("jobs", filter=ACTIVE)).order_by("tenant__slug", "name")
    return [ProfileRow(row, row.active) for row in rows]


def pool_types(pool_id: int) -> list[str]:
    """Return the GPU types that a pool has nodes of, slowest first. One query."""
    types = GpuType.objects.filter(node__pool_id=pool_id).distinct()
    return list(types.order_by("rank", "name").values_list("name", flat=True))


def first_profiled(tenant_id: int) -> str:
    """Return the name of the oldest pool in which a tenant has job types, or nothing. One query."""
    rows = Profile.objects.filter(tenant_id=tenant_id).order_by("pool_id")
    return rows.values_list("pool__name", flat=True).first() or ""
