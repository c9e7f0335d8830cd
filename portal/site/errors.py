"""From errors to answers: every refusal of the API is problem+json with a reason code."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions as drf
from rest_framework.request import Request
from rest_framework.response import Response

from portal.site.lanes import RETRY_AFTER_S
from portal.site.request_id import request_id_of
from scheduling.services import PendingLimitError
from tenants.api.problems import Problem
from tenants.hashing import HashingBusyError
from tenants.idempotency import InFlightError, MismatchError
from tenants.input.errors import InvalidInputError
from tenants.rate import RateError

log = structlog.get_logger(__name__)

PROBLEM = "application/problem+json"
# DRF's refusals -> published codes.
CODES: dict[type[drf.APIException], str] = {
    drf.NotAuthenticated: "not_authenticated",
    drf.AuthenticationFailed: "bad_token",
    drf.PermissionDenied: "forbidden",
    drf.NotFound: "not_found",
    drf.MethodNotAllowed: "method_not_allowed",
    drf.UnsupportedMediaType: "unsupported_media_type",
    drf.NotAcceptable: "not_acceptable",
    drf.Throttled: "throttled",
    drf.ParseError: "invalid_json",
}


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler: answer an error of a view."""
    request: Request = context["request"]
    problem = _problem(error)
    if problem is None:
        log.error("api.failed", path=request.path, exc_info=error)
        # Django's own handler would send it; tests and monitors listen.
        got_request_exception.send(sender=handle, request=request._request)  # noqa: SLF001 - DRF has no other way
        problem = Problem(500, "internal", "Something failed here; it has been noted.")
    response = problem_response(problem, request_id_of(request._request))  # noqa: SLF001 - as above
    header = getattr(error, "auth_header", None)
    if header:
        response["WWW-Authenticate"] = header
    return response


def problem_body(problem: Problem, request_id: str) -> dict[str, Any]:
    """Return what tells a refusal, as RFC 9457 writes it."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(problem.status_code).phrase,
        "status": problem.status_code,
        "detail": str(problem.detail),
        "reason_code": problem.reason_code,
        "errors": [
            {"field": one.field, "reason": one.reason, "hint": one.hint} for one in problem.errors
        ],
        "request_id": request_id,
    }


# What is refused before any view: by a guard, or because of the request's host.
EARLY = {
    400: Problem(400, "invalid", "The request cannot be read: its host, or a NUL in its address."),
    500: Problem(500, "internal", "Something failed here; it has been noted."),
    503: Problem(503, "database_unavailable", "The database cannot be reached; try again."),
}
# What the gate before Django refuses (portal/site/gate.py), by its code; pages say the same.
REFUSALS = {
    "too_large": Problem(
        413,
        "too_large",
        f"The body is too large: at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes are read."
        " Nothing was changed; send less at once.",
    ),
    "too_slow": Problem(
        408, "too_slow", "The body did not arrive in time. Nothing was changed; send it again."
    ),
    "busy": Problem(
        503,
        "busy",
        "Too many requests of this kind wait already. Nothing was changed; try again in a moment.",
    ),
    "no_answer": Problem(
        503, "database_unavailable", "The database did not answer in time; try again."
    ),
}


def early_problem(request: HttpRequest, status: int, code: str = "") -> HttpResponse | None:
    """Return the answer of the API to what no view of it saw; None for a page's address."""
    if not request.path.startswith("/api/"):
        return None
    problem = REFUSALS[code] if code else EARLY[status]
    body = json.dumps({**problem_body(problem, request_id_of(request)), **_status(status)})
    return HttpResponse(body, status=status, content_type=PROBLEM)


def _status(status: int) -> dict[str, Any]:
    return {"title": HTTPStatus(status).phrase, "status": status}


def problem_response(problem: Problem, request_id: str) -> Response:
    """Return the answer that tells a refusal."""
    body = problem_body(problem, request_id)
    response = Response(body, status=problem.status_code, content_type=PROBLEM)
    if problem.retry_after_s is not None:
        response["Retry-After"] = str(problem.retry_after_s)
    return response


def _problem(error: Exception) -> Problem | None:
    """The refusal that an error stands for; None where it is a fault of ours."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, drf.APIException):
        return _of_drf(error)
    return _of_django(error) or _of_domain(error)


def _of_django(error: Exception) -> Problem | None:
    if isinstance(error, Http404):
        return Problem(404, "not_found", "There is nothing here for you.")
    if isinstance(error, PermissionDenied):
        return Problem(403, "forbidden", "This is not allowed.")
    if isinstance(error, RequestDataTooBig):
        return Problem(413, "too_large", "The body is too large.")
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("api.database_unavailable", error=str(error).splitlines()[:1])
        detail = "The database cannot be reached; nothing was changed."
        return Problem(503, "database_unavailable", detail, retry_after_s=5)
    return None


def _of_domain(error: Exception) -> Problem | None:
    if isinstance(error, InvalidInputError):
        count = len(error.errors)
        detail = f"The specification has {count} {'error' if count == 1 else 'errors'}."
        return Problem(400, "invalid_spec", detail, error.errors)
    if isinstance(error, MismatchError):
        detail = "This Idempotency-Key belongs to another request."
        return Problem(422, "idempotency_mismatch", detail)
    if isinstance(error, InFlightError):
        detail = "The first request with this Idempotency-Key is still being served."
        return Problem(409, "idempotency_in_flight", detail, retry_after_s=1)
    return _of_limits(error)


def _of_limits(error: Exception) -> Problem | None:
    if isinstance(error, PendingLimitError):
        detail = f"{error.limit} jobs of the tenant wait already; more may not."
        return Problem(429, "too_many_pending", detail, retry_after_s=60)
    if isinstance(error, RateError):
        detail = "The tenant submits faster than it may; wait a moment."
        return Problem(429, "throttled", detail, retry_after_s=error.retry_after_s)
    if isinstance(error, HashingBusyError):
        detail = str(REFUSALS["busy"].detail)
        return Problem(503, "busy", detail, retry_after_s=RETRY_AFTER_S)
    return None


def _of_drf(error: drf.APIException) -> Problem:
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), "refused")
    if isinstance(error, drf.PermissionDenied) and "CSRF" in str(error.detail):
        code = "csrf"
    wait = getattr(error, "wait", None)
    return Problem(
        error.status_code,
        code,
        str(error.detail),
        retry_after_s=None if wait is None else max(1, int(wait)),
    )
