"""Several jobs laid over each other: curves of their metrics, and parameters against results."""

from typing import NamedTuple
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors.usage import job_costs
from portal.charts.explore.curves import AXES
from portal.common.access import access, signed_in
from portal.common.compare_links import COMPARED_MAX, compare_url
from portal.common.files import csv_file
from portal.jobs.text.compare import (
    CHARTS,
    Comparison,
    compare,
    compared_charts,
    points_of_each,
    table_columns,
)
from portal.jobs.text.curves import axis_named
from scheduling.models import Job
from scheduling.selectors.jobs.comparisons import differing_parameters
from scheduling.selectors.jobs.lists import find_visible_jobs
from scheduling.services.job_metrics import JobMetrics, job_metrics
from tenants.permissions import Action, may_in_tenant, seen_tenants
from tenants.scopes import tenants_scope


class Compared(NamedTuple):
    """The jobs that the viewer may see, their metrics and their table."""

    jobs: list[Job]
    metrics: list[JobMetrics]
    table: Comparison


@signed_in
@require_safe
def compare_page(request: HttpRequest) -> HttpResponseBase:
    """Show the jobs that the query names; without jobs, a form for them."""
    uids = _uids(request)
    found = _compared(request, uids)
    axis = axis_named(request.GET.get("x", ""))
    metric = request.GET.get("metric", "")
    names = [metric] if metric in found.table.metrics else found.table.metrics[:CHARTS]
    shown = [job.uid for job in found.jobs]
    return render(
        request,
        "jobs/compare.html",
        {
            "nav_key": "jobs",
            "table": found.table,
            "charts": compared_charts(found.jobs, found.metrics, names, axis=axis),
            "others": [
                (name, compare_url(shown, x=axis, metric=name))
                for name in found.table.metrics
                if name not in names
            ],
            "axes": [(key, name, compare_url(shown, x=key)) for key, name in AXES.items()],
            "axis": axis,
            "missing": len(uids) - len(found.jobs),
            "file_url": compare_url(shown, name="compare-file"),
            "is_thinned": any(one.is_thinned for one in found.metrics),
            "refused": [
                (job, one.refused)
                for job, one in zip(found.jobs, found.metrics, strict=True)
                if one.refused
            ],
            "kept": [str(uid) for uid in shown],
            "most": COMPARED_MAX,
        },
    )


@signed_in
@require_safe
def compare_file(request: HttpRequest) -> HttpResponseBase:
    """Return the table of parameters and results as a CSV file."""
    table = _compared(request, _uids(request)).table
    return csv_file("compare.csv", table_columns(table), table.rows, hint="choose fewer jobs")


def _uids(request: HttpRequest) -> list[UUID]:
    """Return the ids of the query, each once, at most `COMPARED_MAX`; others are ignored."""
    uids: dict[UUID, None] = {}
    for text in " ".join(request.GET.getlist("job")[: 2 * COMPARED_MAX]).split():
        try:
            uids[UUID(text)] = None
        except ValueError:
            continue
    return list(uids)[:COMPARED_MAX]


def _compared(request: HttpRequest, uids: list[UUID]) -> Compared:
    """Return the visible jobs.

    Raises:
        Http404: jobs are named, but none of them is visible.
    """
    tenants = seen_tenants(access(request))
    with tenants_scope(tenants):
        jobs = [
            job
            for job in find_visible_jobs(uids, tenants)
            if may_in_tenant(access(request), Action.SEE_TENANT, job.tenant_id)
        ]
        if uids and not jobs:
            raise Http404
        parameters = differing_parameters(jobs)
        costs = job_costs(job.pk for job in jobs)
    metrics = [job_metrics(job, points=points_of_each(len(jobs))) for job in jobs]
    return Compared(jobs, metrics, compare(jobs, parameters, metrics, costs))
