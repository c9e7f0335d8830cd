"""The round line, asked every two seconds by every open page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render
from django.utils.http import parse_etags
from django.views.decorators.http import require_safe

from portal.site.access import pool_or_404
from portal.site.context import line_of


@require_safe
def round_line(request: HttpRequest, name: str) -> HttpResponse:
    """The line, or 304 while it would say the same."""
    line = line_of(pool_or_404(request, name))
    response: HttpResponse
    if line.etag in parse_etags(request.headers.get("If-None-Match", "")):
        response = HttpResponseNotModified()
    else:
        response = render(request, "components/round_line.html", {"round_line": line})
    response["ETag"] = line.etag
    response["Cache-Control"] = "no-cache"
    return response
