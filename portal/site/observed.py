"""Counts and logs every request once, when its response is known, without its secrets."""

import time
from collections.abc import Callable
from urllib.parse import quote

import structlog
from django.http import HttpRequest, HttpResponseBase

from portal.site.metrics import request_count, route_of

log = structlog.get_logger("portal.site.access")

PATH_MAX = 200
# Requested every few seconds by machines and open pages: logged at DEBUG unless they fail.
QUIET = frozenset({"healthz", "readyz", "metrics", "round-line"})


class Observed:
    """Inside of `portal.site.request_id.RequestId`, outside of everything that may fail."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = time.perf_counter()
        response = self._get_response(request)
        seconds = time.perf_counter() - begun
        request_count(request, response.status_code, seconds)
        match = request.resolver_match
        quiet = match is not None and match.url_name in QUIET and response.status_code < 400
        (log.debug if quiet else log.info)(
            "http.request",
            method=(request.method or "")[:16],
            # Quoted, so that no URL can forge a line; the query may contain private data.
            path=quote(request.path)[:PATH_MAX],
            route=route_of(request),
            status=response.status_code,
            ms=round(seconds * 1000, 1),
        )
        return response
