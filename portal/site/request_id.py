"""Gives every request an id: in its response, in its log lines, in its errors."""

import re
import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponseBase

HEADER = "X-Request-Id"
# Valid ids of a proxy; other text could forge log lines.
_SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}")


class RequestId:
    """Takes a valid `X-Request-Id` or makes one; outermost, so that errors have it too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request_id = sane_request_id(request.headers.get(HEADER, ""))
        request.__dict__["_evenshare_request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = self._get_response(request)
        response[HEADER] = request_id
        return response


def sane_request_id(given: str) -> str:
    """Return a proxy's id if it is valid, else a new one."""
    return given if _SANE.fullmatch(given) else uuid.uuid4().hex


def request_id_of(request: HttpRequest) -> str:
    """Return the request's id; empty outside of the middleware."""
    return str(request.__dict__.get("_evenshare_request_id", ""))
