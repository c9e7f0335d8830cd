"""The guard of every request.

It answers requests that the gate refused, and refuses text that Postgres cannot store. It keeps
pages out of shared caches, and returns 503 while the database is away.
"""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes, urlsplit

import structlog
from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from portal.site.error_views import bad_request, refused, unavailable
from portal.site.gate import REFUSAL
from portal.site.lanes import RETRY_AFTER_S, RequestRefusedError
from tenants.hashing import HashingBusyError

log = structlog.get_logger(__name__)


class Guards:
    """Outermost of our own middleware, below the request id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        refusal = getattr(request, "scope", {}).get(REFUSAL)
        if refusal is not None:
            return refused(request, refusal)
        # Postgres refuses NUL in text, so a URL with NUL cannot match anything.
        query = request.META["QUERY_STRING"]
        if "\0" in request.path or b"\0" in unquote_to_bytes(query):
            return bad_request(request, SuspiciousOperation("NUL in the address"))
        response = self._get_response(request)
        # After a logout, "back" must not show pages again.
        if settings.SESSION_COOKIE_NAME in request.COOKIES and "Cache-Control" not in response:
            response["Cache-Control"] = "private, no-store"
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return 503 with a retry time if the database is away or hashing is busy."""
        if isinstance(error, HashingBusyError):
            return refused(request, RequestRefusedError(503, "busy", retry_after_s=RETRY_AFTER_S))
        if not isinstance(error, OperationalError | InterfaceError):
            return None
        log.warning("database.away", path=request.path, error=str(error)[:200])
        return unavailable(request)


class NoSuchFile:
    """Inside of WhiteNoise: returns 404 for a missing static file, without a query."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(settings.STATIC_URL):
            return HttpResponse("There is no such file.\n", status=404, content_type="text/plain")
        return self._get_response(request)


class NoSessions:
    """Refuses requests that scripts of an interactive job's origin make with a viewer's cookies.

    A session's domain may be of the portal's site, so `SameSite` does not keep the cookies back. A
    link to the portal stays possible.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SESSIONS_DOMAIN and _is_of_session(request):
            return HttpResponse("Sessions may not call the portal.\n", status=403)
        return self._get_response(request)


def _is_of_session(request: HttpRequest) -> bool:
    below = f".{settings.SESSIONS_DOMAIN}"
    if request.headers.get("X-Forwarded-Host", "").lower().endswith(below):
        return False  # the proxy asks on behalf of a session
    if urlsplit(request.headers.get("Origin", "")).netloc.lower().endswith(below):
        return True
    is_subresource = request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
    return is_subresource and request.headers.get("Sec-Fetch-Site") == "same-site"
