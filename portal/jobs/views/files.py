"""A job's files: a page with the list, and the downloads."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.charts.figures import plural
from portal.common.access import about, signed_in
from portal.jobs.views.jobs import job_or_404
from scheduling.api.job_files import MORE, TOO_LARGE, file_answer
from scheduling.engine.executors.job_files import WINDOW_BYTES
from scheduling.selectors.pools.lines import pool_facts
from scheduling.services.job_files import job_files
from tenants.scopes import tenant_scope


@signed_in
@require_safe
def file_list(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Show the files of a job's folder; without access to its folder, say so."""
    job = job_or_404(request, uid)
    with tenant_scope(job.tenant_id):
        about(request).pool = pool_facts(job.pool_id)
    listed = job_files(job)
    count = plural(len(listed.files), "file")
    context = {
        "job": job,
        "nav_key": "jobs",
        "listed": listed,
        "files_title": _("The first {files}").format(files=count) if listed.cut else count,
        "window": WINDOW_BYTES,
        "has_large": any(one.bytes > WINDOW_BYTES for one in listed.files),
        "fetch_command": f"evenshare job fetch {job.uid} PATH",
    }
    response = render(request, "jobs/files.html", context)
    response["Cache-Control"] = "no-store"
    return response


@signed_in
@require_safe
def file_fetch(request: HttpRequest, uid: UUID, path: str) -> HttpResponseBase:
    """Download a file of at most 8 MiB, or a part of one."""
    answer = file_answer(job_or_404(request, uid), path, request)
    if answer is None:
        raise Http404
    if answer.status_code == TOO_LARGE:
        return HttpResponse(f"{MORE}\n", status=TOO_LARGE, content_type="text/plain")
    return answer
