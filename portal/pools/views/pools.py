"""All pools that the viewer may see, each on its own clock."""

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors.prices import prices_now
from portal.charts.notes import Instant
from portal.common.access import signed_in, visible_pool_names
from portal.common.clocks import Clocks, clocks
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
                "at": _now(clocks(facts)),
                "prices": prices_now(facts.id),
            }
            for facts in seen
        ]
    return render(request, "pools/pools.html", {"rows": rows, "nav_key": "pool", "live": True})


def _now(times: Clocks) -> Instant | None:
    return times.instant(times.now.pool_at)
