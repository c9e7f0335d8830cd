"""All pools that the viewer may see, each on its own clock."""

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors.prices import prices_now
from portal.common.access import signed_in, visible_pool_names
from portal.common.clocks import clocks
from portal.site.context import line_of
from scheduling.selectors.pools.lines import pools_named
from tenants.scopes import site_scope


@signed_in
@require_safe
def pools(request: HttpRequest) -> HttpResponseBase:
    """Show GPUs, policy, last round and prices of each pool."""
    names = visible_pool_names(request)
    with site_scope():
        seen = pools_named(names) if names else []
        rows = [
            {
                "facts": facts,
                "line": line_of(facts),
                "clock": clocks(facts).now,
                "prices": prices_now(facts.id),
            }
            for facts in seen
        ]
    return render(request, "pools/pools.html", {"rows": rows, "nav_key": "pool", "live": True})
