"""A job's resource usage: the live region of the job's page."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.common.access import signed_in
from portal.common.clocks import clocks
from portal.jobs.text.usage import usage_context
from portal.jobs.views.jobs import job_or_404
from scheduling.selectors.pools.lines import pool_facts
from scheduling.services.usage import newest_leases, reports_usage
from tenants.scopes import tenant_scope


@signed_in
@require_safe
def usage_region(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Return the region, or 204 if it is unchanged."""
    job = job_or_404(request, uid)
    if not reports_usage(job):
        raise Http404
    with tenant_scope(job.tenant_id):
        pool = pool_facts(job.pool_id)
        leases = newest_leases(job)
    if pool is None:
        raise Http404
    context = usage_context(job, leases, clocks(pool))
    if request.GET.get("seen") == context["usage_digest"]:
        response = HttpResponse(status=204)
    else:
        response = render(request, "jobs/_usage.html", {"job": job, **context})
    response["Cache-Control"] = "no-store"
    return response
