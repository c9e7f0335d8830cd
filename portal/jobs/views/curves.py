"""A job's metrics: the live region of the job's page, and a CSV file."""

from operator import itemgetter
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.common.access import signed_in
from portal.common.files import csv_file
from portal.jobs.text.curves import axis_named, curves_context
from portal.jobs.views.jobs import job_or_404
from scheduling.services.job_metrics import job_metrics, reports_metrics

COLUMNS = {
    "metric": itemgetter(0),
    "step": itemgetter(1),
    "value": itemgetter(2),
    "seconds since the first point": itemgetter(3),
}


@signed_in
@require_safe
def curves_region(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Return the region, or 204 if it is unchanged."""
    job = job_or_404(request, uid)
    if not reports_metrics(job):
        raise Http404
    context = curves_context(job, axis_named(request.GET.get("x", "")))
    if request.GET.get("seen") == context["curves_digest"]:
        response = HttpResponse(status=204)
    else:
        response = render(request, "jobs/_curves.html", {"job": job, **context})
    response["Cache-Control"] = "no-store"
    return response


@signed_in
@require_safe
def curves_file(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Return all points of all metrics as a CSV file."""
    job = job_or_404(request, uid)
    rows = [
        (curve.name, point.step, point.value, point.elapsed_s)
        for curve in job_metrics(job).metrics
        for point in curve.points
    ]
    return csv_file(f"metrics-{job.uid}.csv", COLUMNS, rows, hint=_("choose fewer metrics"))
