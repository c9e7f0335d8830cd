"""A tenant's job type: declared and measured speeds, and the measurements behind them."""

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.common.access import signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import clocks
from portal.jobs.text.profiling import profiling_text, run_rows
from portal.jobs.text.speeds import headline_of, note_lines, speed_rows, time_rows
from scheduling.selectors.rounds.certificates import last_overclaimed
from scheduling.selectors.speeds.measurements import read_measurements
from scheduling.selectors.speeds.profiles import first_profiled
from tenants.scopes import site_scope, tenant_scope


@signed_in
@require_safe
def job_type(request: HttpRequest, slug: str, profile: str) -> HttpResponseBase:
    """Show a job type in one pool, `?pool=`, by default the oldest pool with job types."""
    tenant = tenant_or_404(request, slug)
    with tenant_scope(tenant.pk):
        wanted = request.GET.get("pool", "") or first_profiled(tenant.pk)
    facts = tenant_pool(request, tenant, wanted)
    if facts is None:
        raise Http404
    with tenant_scope(tenant.pk):
        seen = read_measurements(facts.id, tenant.pk, profile)
    if seen is None:
        raise Http404
    with site_scope():
        shown_in = last_overclaimed(facts.id, seen.profile.pk) if seen.overclaims else None
    context = {
        "tenant": tenant,
        "pool": facts,
        "nav_key": "jobs",
        "clock": clocks(facts),
        "profile": seen.profile,
        "headline": headline_of(seen),
        "overclaims": seen.overclaims,
        "shown_in": shown_in,
        "speeds": speed_rows(seen),
        "times": time_rows(seen),
        "notes": note_lines(seen),
        "profiling": profiling_text(seen.runs),
        "runs": run_rows(seen.runs, seen.run_phases),
    }
    return render(request, "jobs/job_type.html", context)
