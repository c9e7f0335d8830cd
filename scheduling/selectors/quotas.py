"""Quotas by key, newest first."""

from __future__ import annotations

from collections.abc import Collection

from tenants.models import Quota


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
