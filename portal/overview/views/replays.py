"""Replays of a tenant's pools under other policies, with only the tenant's own figures."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.common.access import signed_in, tenant_or_404
from portal.common.clocks import clocks_by_pool
from portal.common.simulated import REPLAY_METRICS, metric_rows, policy_names
from scheduling.selectors.pools.lines import pools_named
from scheduling.selectors.pools.simulations import own_replays
from tenants.scopes import tenant_scope
from tenants.selectors.quotas import pools_of


@signed_in
@require_safe
def replays(request: HttpRequest, slug: str) -> HttpResponse:
    """Show how this tenant would have fared in each replay that operators show to tenants."""
    tenant = tenant_or_404(request, slug)
    with tenant_scope(tenant.pk):
        rows = own_replays(tenant.pk, pools_of(tenant.pk))
    times = clocks_by_pool(pools_named({row.pool for row in rows}))
    shown = [
        (
            row,
            times[row.pool].instant(row.until),
            policy_names(row.policies, row.own_policy),
            metric_rows(REPLAY_METRICS, row.figures),
        )
        for row in rows
    ]
    context = {"tenant": tenant, "replays": shown, "nav_key": "overview"}
    return render(request, "overview/replays.html", context)
