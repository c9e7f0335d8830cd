"""Several jobs laid over each other: curves of their metrics, and parameters against results."""

from typing import Any, NamedTuple
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import override, pgettext
from django.views.decorators.http import require_safe

from billing.selectors.usage import job_costs
from portal.charts.explore.curves import STEP, TIME
from portal.common.access import access, signed_in
from portal.common.compare_links import COMPARED_MAX, compare_url
from portal.common.files import csv_file
from portal.jobs.text.compare import (
    CHARTS,
    RunComparison,
    compare,
    compared_charts,
    points_of_each,
)
from portal.jobs.text.curves import axis_named
from scheduling.models import Job
from scheduling.selectors.jobs.comparisons import Parameter, differing_parameters
from scheduling.selectors.jobs.lists import find_visible_jobs
from scheduling.selectors.stored_texts import STORED
from scheduling.services.job_metrics import JobMetrics, job_metrics
from tenants.permissions import Action, may_in_tenant, seen_tenants
from tenants.scopes import tenants_scope


class Compared(NamedTuple):
    """The jobs that the viewer may see, their metrics, differing parameters and table."""

    jobs: list[Job]
    metrics: list[JobMetrics]
    parameters: list[Parameter]
    table: RunComparison


@signed_in
@require_safe
def compare_page(request: HttpRequest) -> HttpResponseBase:
    """Show the jobs that the query names; without jobs, a form for them."""
    uids = _uids(request)
    compared = _compared(request, uids)
    axis = axis_named(request.GET.get("x", ""))
    metric = request.GET.get("metric", "")
    names = [metric] if metric in compared.table.metrics else compared.table.metrics[:CHARTS]
    shown = [job.uid for job in compared.jobs]
    return render(
        request,
        "jobs/compare.html",
        {
            "nav_key": "jobs",
            "table": compared.table,
            "charts": compared_charts(
                list(zip(compared.jobs, compared.metrics, strict=True)),
                compared.parameters,
                names,
                axis=axis,
            ),
            "tenants": list({job.tenant_id: job.tenant for job in compared.jobs}.values()),
            "others": [
                (name, compare_url(shown, x=axis, metric=name))
                for name in compared.table.metrics
                if name not in names
            ],
            "axes": [
                (STEP, pgettext("axis", "Over steps"), compare_url(shown, x=STEP)),
                (TIME, pgettext("axis", "Over time"), compare_url(shown, x=TIME)),
            ],
            "axis": axis,
            "missing": len(uids) - len(compared.jobs),
            "file_url": compare_url(shown, name="compare-file"),
            "is_thinned": any(one.is_thinned for one in compared.metrics),
            "refused": [
                (job, STORED.shown(one.refused))
                for job, one in zip(compared.jobs, compared.metrics, strict=True)
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
    columns = _file_columns(table)
    return csv_file("compare.csv", columns, table.rows, hint=_("choose fewer jobs"))


def _file_columns(table: RunComparison) -> dict[str, Any]:
    """Return the columns of the CSV file, in English; a repeated name is left out."""

    def parameter(place: int) -> Any:
        return lambda row: row.parameters[place]

    def result(place: int, which: int) -> Any:
        return lambda row: row.results[place][which]

    with override("en"):
        heads = table.heads
    columns: dict[str, Any] = {"job": "job.uid", "name": "name", "state": "job.state"}
    for place, name in enumerate(table.parameters):
        columns.setdefault(name, parameter(place))
    for place, name in enumerate(heads):
        columns.setdefault(name, result(place // 2, place % 2))
    return columns | {"GPU-hours": "gpu_h", "charge, credits": "charge"}


def _uids(request: HttpRequest) -> list[UUID]:
    """Return the ids of the query, each once, at most `COMPARED_MAX`; other ids are ignored."""
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
    return Compared(jobs, metrics, parameters, compare(jobs, parameters, metrics, costs))
