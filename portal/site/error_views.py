"""Pages for what went wrong. They ask no database, and tell the id that the log has."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.template import loader

from portal.site.errors import early_problem
from portal.site.request_id import request_id_of


def server_error(request: HttpRequest) -> HttpResponse:
    """500: without the request's context, which may be what failed."""
    return _page(request, "500.html", 500)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    """400: the request may lie about its host, so nothing else is made of it."""
    return _page(request, "400.html", 400)


def unavailable(request: HttpRequest) -> HttpResponse:
    """503: the database is away for a moment."""
    return _page(request, "503.html", 503)


def _page(request: HttpRequest, template: str, status: int) -> HttpResponse:
    problem = early_problem(request, status)
    if problem is not None:
        return problem
    page = loader.get_template(template).render({"request_id": request_id_of(request)})
    return HttpResponse(page, status=status)
