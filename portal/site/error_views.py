"""Error pages. They make no query, and show the request id that the log has."""

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import loader
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.defaults import page_not_found

from portal.charts.figures import thousands
from portal.site.errors import early_problem
from portal.site.lanes import RETRY_AFTER_S, RequestRefusedError
from portal.site.request_id import request_id_of
from tenants.api.problems import PROBLEMS, TOO_LARGE


def server_error(request: HttpRequest) -> HttpResponse:
    """Return 500 without the request's context, which may be the cause."""
    return _page(request, "500.html", 500)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    """Return 400; the request's host may be forged, so the page does not use the request."""
    return _page(request, "400.html", 400)


def stale_form(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001 - Django's signature
    """Return 403: the form's token is missing or not of the present session."""
    return HttpResponse(
        loader.get_template("errors/stale_form.html").render(
            {"request_id": request_id_of(request)}
        ),
        status=403,
    )


def missing_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 404 in the frame of all pages, or 503 if the frame cannot be read."""
    try:
        return page_not_found(request, exception)
    except (OperationalError, InterfaceError):
        return unavailable(request)


def unavailable(request: HttpRequest) -> HttpResponse:
    """Return 503: the database is temporarily away."""
    response = _page(request, "503.html", 503)
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def refused(request: HttpRequest, refusal: RequestRefusedError) -> HttpResponse:
    """Return 413, 408, 429 or 503 with advice, for a request that no view received."""
    if request.path == reverse("readyz"):
        # The format of the readiness probe.
        checks = [{"name": "database", "state": "failing"}]
        response: HttpResponse = JsonResponse({"status": "not ready", "checks": checks}, status=503)
    else:
        response = _page(request, "errors/refused.html", refusal.status, refusal.code)
    response["Cache-Control"] = "no-store"
    if refusal.retry_after_s is not None:
        response["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status in (408, 413):
        response["Connection"] = "close"  # the rest of the body is not read
    # Django would log an error for each; the log line of the request is enough.
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - its only switch
    return response


def _page(request: HttpRequest, template: str, status: int, code: str = "") -> HttpResponse:
    problem = early_problem(request, status, code)
    if problem is not None:
        return problem
    context = {"request_id": request_id_of(request), "status": status}
    if code:
        context["text"] = _advice(code)
    return HttpResponse(loader.get_template(template).render(context), status=status)


def _advice(code: str) -> str:
    if code == "too_large":
        return _(TOO_LARGE).format(count=thousands(settings.DATA_UPLOAD_MAX_MEMORY_SIZE))
    return _(PROBLEMS[code][1])
