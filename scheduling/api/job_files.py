"""The files of a job's folder, over REST: a list, and each file in windows."""

import re
from typing import ClassVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from scheduling.api.base import JobView, SchedulingView
from scheduling.engine.executors.job_files import WINDOW_BYTES
from scheduling.models import Job
from scheduling.services.job_files import JobFiles, job_files, read_job_file
from tenants.api.problems import Problem, not_there
from tenants.tokens import Scope

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))")
MORE = f"Request at most {WINDOW_BYTES} bytes at a time, with Range, or use: evenshare job fetch"


class JobFileList(JobView):
    """List the files that a job's program wrote into its folder, at most 1,000."""

    address = "jobs/<uuid:uid>/files"
    operation = "job_files"
    answer = JobFiles
    shows = ("Log.text",)

    def show(self, uid: UUID) -> JobFiles:
        return job_files(self.job(uid))


class JobFileFetch(SchedulingView):
    address = "jobs/<uuid:uid>/files/<path:path>"
    scopes: ClassVar[dict[str, str]] = {"GET": Scope.JOBS_READ.value}

    @extend_schema(
        operation_id="job_file",
        parameters=[
            OpenApiParameter("Range", OpenApiTypes.STR, OpenApiParameter.HEADER),
        ],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, uid: UUID, path: str) -> HttpResponse:
        """Download a file, or with `Range` a part of it; at most 8 MiB at a time."""
        answer = file_answer(self.job(uid), path, request)
        if answer is None:
            raise not_there()
        if answer.status_code == TOO_LARGE:
            raise Problem("too_large", f"{MORE}.")
        return answer


TOO_LARGE = 413


def file_answer(job: Job, path: str, request: HttpRequest | Request) -> HttpResponse | None:
    """Return a file as a download that no browser shows or runs; None if there is no such file.

    The status is 413 if the file is larger than a window and no range is requested.
    """
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    begin, limit = _wanted(match)
    window = read_job_file(job, path, begin, limit)
    if window is None:
        return None
    if match is None and window.total > WINDOW_BYTES:
        return HttpResponse(status=TOO_LARGE)
    headers = {
        "Content-Disposition": content_disposition_header(True, path.rpartition("/")[2]) or "",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-store",
        "Accept-Ranges": "bytes",
        # Strong, so that nothing compresses a part of a file.
        "ETag": f'"{window.version}"',
    }
    status = 200
    if match is not None and window.data:
        status, last = 206, window.offset + len(window.data) - 1
        headers["Content-Range"] = f"bytes {window.offset}-{last}/{window.total}"
    elif match is not None:
        status, headers["Content-Range"] = 416, f"bytes */{window.total}"
    kind = "application/octet-stream"
    return HttpResponse(window.data, status=status, content_type=kind, headers=headers)


def _wanted(match: re.Match[str] | None) -> tuple[int, int]:
    """Return the offset (negative: from the end) and the length that a range requests."""
    if match is None:
        return 0, WINDOW_BYTES
    first, last, suffix = match.groups()
    if suffix is not None:
        return -int(suffix), int(suffix)
    return int(first), WINDOW_BYTES if last is None else max(0, int(last) - int(first) + 1)
