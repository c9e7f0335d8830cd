"""Badges of tenants for a page, depending on the tenants that its viewer may see."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from portal.charts.tenants import BADGES, OTHERS, TenantBadge, group_small, hidden_badge
from scheduling.selectors.visibility import VisibleTenant
from tenants.models import Tenant


def badge_of(seen: VisibleTenant | None) -> TenantBadge:
    """Return a tenant's badge, or the grey badge if the tenant is hidden."""
    if seen is None:
        return hidden_badge()
    return TenantBadge(seen.name, seen.swatch, seen.initials, you=seen.you)


def tenant_badge(tenant: Tenant) -> TenantBadge:
    """Return a tenant's badge for viewers who see all tenants."""
    return TenantBadge(tenant.name, tenant.swatch % BADGES, tenant.initials)


def map_badges(seen: Iterable[VisibleTenant], use: Mapping[int, int]) -> dict[int, TenantBadge]:
    """Return badges by tenant for a node map: above 12 tenants the smallest users share one."""
    badges = {str(row.id): badge_of(row) for row in seen}
    grouped = group_small(badges, {str(tenant): gpus for tenant, gpus in use.items()})
    return {
        int(key): badge if badge.index != OTHERS else replace(badge, name=badges[key].name)
        for key, badge in grouped.items()
    }
