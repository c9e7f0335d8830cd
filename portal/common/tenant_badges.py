"""Badges of tenants for a page, from what its viewer may see of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from portal.charts.tenants import BADGES, HIDDEN, OTHERS, TenantBadge, group_small
from scheduling.selectors.visibility import VisibleTenant
from tenants.models import Tenant


def badge_of(seen: VisibleTenant | None) -> TenantBadge:
    """The badge of one tenant; one grey badge for all that are out of sight."""
    if seen is None:
        return HIDDEN
    return TenantBadge(seen.name, seen.swatch, seen.initials, you=seen.you)


def tenant_badge(tenant: Tenant) -> TenantBadge:
    """The badge of a tenant for those who see all tenants."""
    return TenantBadge(tenant.name, tenant.swatch % BADGES, tenant.initials)


def map_badges(seen: Iterable[VisibleTenant], use: Mapping[int, int]) -> dict[int, TenantBadge]:
    """Badges by tenant for a node map: past twelve tenants the smallest users share one."""
    badges = {str(row.id): badge_of(row) for row in seen}
    grouped = group_small(badges, {str(tenant): gpus for tenant, gpus in use.items()})
    return {
        int(key): badge if badge.index != OTHERS else replace(badge, name=badges[key].name)
        for key, badge in grouped.items()
    }
