"""Marks of tenants for a page, from what its viewer may see of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from portal.charts.tenants import MARKS, OTHERS, TenantMark, group_small
from scheduling.selectors.visibility import VisibleTenant
from tenants.models import Tenant

HIDDEN = TenantMark("other tenants", OTHERS, "\N{MIDDLE DOT}\N{MIDDLE DOT}")


def mark_of(seen: VisibleTenant | None) -> TenantMark:
    """The mark of one tenant; one grey mark for all that are out of sight."""
    if seen is None:
        return HIDDEN
    return TenantMark(seen.name, seen.swatch, seen.initials, you=seen.you)


def tenant_badge(tenant: Tenant) -> TenantMark:
    """The mark of a tenant for those who see all tenants."""
    return TenantMark(tenant.name, tenant.swatch % MARKS, tenant.initials)


def map_marks(seen: Iterable[VisibleTenant], use: Mapping[int, int]) -> dict[int, TenantMark]:
    """Marks by tenant for a node map: past twelve tenants the smallest users share one."""
    marks = {str(row.id): mark_of(row) for row in seen}
    grouped = group_small(marks, {str(tenant): gpus for tenant, gpus in use.items()})
    return {
        int(key): mark if mark.index != OTHERS else replace(mark, name=marks[key].name)
        for key, mark in grouped.items()
    }
