"""The round line, polled every two seconds by every open page.

This view computes it. Most polls are answered earlier from a stored response (`portal.site.polls`).
"""

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.common.access import pool_or_404
from portal.site.context import line_of
from portal.site.etags import is_known


@require_safe
def round_line(request: HttpRequest, name: str) -> HttpResponse:
    """Return the line, or 304 if it is unchanged."""
    line = line_of(pool_or_404(request, name))
    response: HttpResponse
    if is_known(line.etag, request.headers.get("If-None-Match", "")):
        response = HttpResponseNotModified()
    else:
        response = render(request, "components/round_line.html", {"round_line": line})
    response["ETag"] = line.etag
    response["Cache-Control"] = "no-cache"
    return response
