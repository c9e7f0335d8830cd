"""A job's output: the live region of the job's page, and a page with all of it."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.common.access import about, signed_in
from portal.jobs.text.output import (
    kept_bytes,
    output_at,
    output_context,
    output_tail,
    writes_output,
)
from portal.jobs.views.jobs import job_or_404, number_asked
from scheduling.models import Job
from scheduling.selectors.pools.lines import pool_facts
from tenants.scopes import tenant_scope


@signed_in
@require_safe
def log_page(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Return the region for htmx, or 204 if it is unchanged; otherwise the full page."""
    job = job_or_404(request, uid)
    if not writes_output(job):
        raise Http404
    lease = number_asked(request, "lease")
    if request.headers.get("HX-Request") == "true":
        return _region(request, job, lease)
    with tenant_scope(job.tenant_id):
        about(request).pool = pool_facts(job.pool_id)
    at = number_asked(request, "at")
    output = output_tail(job, lease) if at is None else output_at(job, lease, at)
    context = {
        "job": job,
        "nav_key": "jobs",
        "output": output,
        "at": at,
        "kept_mb": kept_bytes() // 2**20,
    }
    return _uncached(render(request, "jobs/log.html", context))


def _region(request: HttpRequest, job: Job, lease: int | None) -> HttpResponse:
    context = output_context(job, lease)
    if request.GET.get("seen") == context["digest"]:
        return _uncached(HttpResponse(status=204))
    response = render(request, "jobs/_log.html", {"job": job, **context})
    if request.GET.get("state") != context["state_digest"]:
        # Make the whole page reload, as after a round: the rest of it is out of date.
        response["HX-Trigger"] = "round-changed"
    return _uncached(response)


def _uncached(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    return response
