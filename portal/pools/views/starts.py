"""The accuracy of a pool's start estimates."""

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.common.access import pool_or_404, signed_in
from portal.common.clocks import clocks
from portal.pools.text.labels import window_choices
from portal.pools.text.starts import calibration_context
from scheduling.selectors.jobs.start_estimates import WINDOWS, read_calibration
from tenants.scopes import site_scope

DEFAULT = "day"


@signed_in
@require_safe
def starts(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show how many jobs of all tenants' past estimates started before p90 and before p50."""
    facts = pool_or_404(request, name)
    times = clocks(facts)
    asked = request.GET.get("window", DEFAULT)
    window = asked if asked in WINDOWS else DEFAULT
    with site_scope():
        past = read_calibration(facts.id, times.now.pool_at, WINDOWS[window])
    context = {
        "pool": facts,
        "nav_key": "pool",
        "window": window,
        "windows": window_choices(WINDOWS),
        **calibration_context(past, times, facts.name),
    }
    return render(request, "pools/starts.html", context)
