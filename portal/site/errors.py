"""Error responses: every refusal of the API is problem+json with a reason code."""

import json
from http import HTTPStatus
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions as drf
from rest_framework.request import Request
from rest_framework.response import Response

from portal.site.lanes import RETRY_AFTER_S
from portal.site.request_id import request_id_of
from scheduling.services.submit import PendingLimitError
from tenants.api.problems import Problem
from tenants.hashing import HashingBusyError
from tenants.idempotency import InFlightError, MismatchError
from tenants.input.errors import InvalidInputError
from tenants.rate import RateError

log = structlog.get_logger(__name__)

PROBLEM = "application/problem+json"
# For each of DRF's exceptions, the published code.
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
# For other exceptions, the published code and the seconds until a retry.
ERRORS: dict[type[Exception], tuple[str, int | None]] = {
    Http404: ("not_found", None),
    PermissionDenied: ("forbidden", None),
    RequestDataTooBig: ("too_large", None),
    OperationalError: ("database_unavailable", RETRY_AFTER_S),
    InterfaceError: ("database_unavailable", RETRY_AFTER_S),
    MismatchError: ("idempotency_mismatch", None),
    InFlightError: ("idempotency_in_flight", 1),
    HashingBusyError: ("busy", RETRY_AFTER_S),
}


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """Return the response to an exception of a view, as DRF's exception handler."""
    request: Request = context["request"]
    problem = _problem(error)
    if problem is None:
        log.error("api.failed", path=request.path, exc_info=error)
        # Django's own handler would send this signal; tests and monitors listen to it.
        got_request_exception.send(sender=handle, request=request._request)  # noqa: SLF001 - DRF has no other way
        problem = Problem("internal")
    response = problem_response(problem, request_id_of(request._request))  # noqa: SLF001 - as above
    header = getattr(error, "auth_header", None)
    if header:
        response["WWW-Authenticate"] = header
    return response


def problem_body(problem: Problem, request_id: str) -> dict[str, Any]:
    """Return the body of a refusal by RFC 9457."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(problem.status_code).phrase,
        "status": problem.status_code,
        "detail": str(problem.detail),
        "reason_code": problem.reason_code,
        "errors": [
            {"field": one.field, "reason": one.reason, "hint": one.hint}
            # Only errors in a text that was sent have lines.
            | ({} if one.line is None else {"line": one.line})
            for one in problem.errors
        ],
        "request_id": request_id,
    }


# Codes of refusals that no guard has given a code, by status.
EARLY = {400: "invalid", 500: "internal", 503: "database_unavailable"}


def early_problem(request: HttpRequest, status: int, code: str = "") -> HttpResponse | None:
    """Return the API's response to a request that no view received; None for a page's URL."""
    if not request.path.startswith("/api/"):
        return None
    problem = Problem(code or EARLY[status])
    problem.status_code = status
    body = json.dumps(problem_body(problem, request_id_of(request)))
    return HttpResponse(body, status=status, content_type=PROBLEM)


def problem_response(problem: Problem, request_id: str) -> Response:
    """Return the response of a refusal."""
    body = problem_body(problem, request_id)
    response = Response(body, status=problem.status_code, content_type=PROBLEM)
    if problem.retry_after_s is not None:
        response["Retry-After"] = str(problem.retry_after_s)
    return response


def _problem(error: Exception) -> Problem | None:
    """Return the refusal for an exception, or None if it is our bug."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, drf.APIException):
        return _of_drf(error)
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("api.database_unavailable", error=str(error).splitlines()[:1])
    for kind, (code, retry_after_s) in ERRORS.items():
        if isinstance(error, kind):
            return Problem(code, retry_after_s=retry_after_s)
    return _of_domain(error)


def _of_domain(error: Exception) -> Problem | None:
    if isinstance(error, InvalidInputError):
        count = len(error.errors)
        detail = f"The specification has {count} {'error' if count == 1 else 'errors'}."
        return Problem("invalid_spec", detail, error.errors)
    if isinstance(error, PendingLimitError):
        detail = f"The tenant already has {error.limit} queued jobs, the maximum."
        return Problem("too_many_pending", detail, retry_after_s=60)
    if isinstance(error, RateError):
        return Problem("throttled", retry_after_s=error.retry_after_s)
    return None


def _of_drf(error: drf.APIException) -> Problem:
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), "refused")
    if isinstance(error, drf.PermissionDenied) and "CSRF" in str(error.detail):
        code = "csrf"
    wait = getattr(error, "wait", None)
    retry_after_s = None if wait is None else max(1, int(wait))
    problem = Problem(code, str(error.detail), retry_after_s=retry_after_s)
    problem.status_code = error.status_code  # 403 if a view requires no credentials
    return problem
