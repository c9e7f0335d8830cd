"""Endpoints of probes and monitors: alive, ready, metrics. None is a page."""

import secrets
from ipaddress import ip_address

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from portal.site.health import is_ready, readiness
from portal.site.metrics import CONTENT_TYPE, exposition

# A request with one of these headers comes through a proxy, whatever its address.
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Forwarded")


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:  # noqa: ARG001 - Django's signature
    """Return 200: the process answers.

    A restart would not repair a database, so no more is checked.
    """
    return _fresh(JsonResponse({"status": "ok"}))


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return an entry per check, with 503 if one fails. Details require access to metrics."""
    checks = readiness()
    ready = is_ready(checks)
    is_trusted = trusted(request)
    body = {
        "status": "ready" if ready else "not ready",
        "checks": [
            {"name": check.name, "state": check.state.value}
            | ({"detail": check.detail} if is_trusted and check.detail else {})
            for check in checks
        ],
    }
    answer = _fresh(JsonResponse(body, status=200 if ready else 503))
    # Django would log an error at every probe; the log line of the request is enough.
    answer._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - its only switch
    return answer


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return Prometheus' text, or 404 if the client is not a monitor."""
    if not trusted(request):
        raise Http404
    return _fresh(HttpResponse(exposition(), content_type=CONTENT_TYPE))


def trusted(request: HttpRequest) -> bool:
    """Return whether the client is a monitor: with the token, or local without a proxy."""
    token: str = settings.METRICS_TOKEN
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if token and scheme.lower() == "bearer":
        return secrets.compare_digest(given.strip().encode(), token.encode())
    if settings.SECURE_PROXY_SSL_HEADER or any(name in request.headers for name in FORWARDED):
        return False
    try:
        return ip_address(request.META["REMOTE_ADDR"]).is_loopback
    except (KeyError, ValueError):
        return False


def _fresh(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    return response
