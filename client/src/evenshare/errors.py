"""Errors of the command and of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class EvenshareError(Exception):
    """Base of all errors of this package."""


class UsageError(EvenshareError):
    """The arguments or the stored login are invalid; nothing was sent."""


class UnreachableError(EvenshareError):
    """No response arrived, or the response is not from a portal."""


class ApiError(EvenshareError):
    """A refusal by the server, with its problem+json, or the fields of it that arrived."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {problem.get('title', '')}")
        self.status = status
        self.problem = problem

    def __str__(self) -> str:
        rows = [f"{self.args[0]}: {self.problem['detail']}" if self.problem.get("detail") else ""]
        rows += [f"{name}: {reason}" for name, reason in self.fields.items()]
        return "; ".join(filter(None, rows)) or str(self.args[0])

    @property
    def reason_code(self) -> str:
        """Return the code for programs, such as `invalid_spec`; empty if none arrived."""
        return str(self.problem.get("reason_code") or "")

    @property
    def fields(self) -> dict[str, str]:
        """Return the first error of each invalid field, such as `gpus`, `command[0]`."""
        errors = self.problem.get("errors")
        reasons: dict[str, str] = {}
        for error in errors if isinstance(errors, list) else ():
            if isinstance(error, Mapping):
                reasons.setdefault(str(error.get("field", "")), str(error.get("reason", "")))
        return reasons

    @property
    def retry_after_s(self) -> float:
        """Return the server's waiting time before a retry; 0 if it gives none."""
        after = self.problem.get("retry_after_s")
        return float(after) if isinstance(after, int) else 0.0


class InvalidRequestError(ApiError):
    """Fields are invalid; see `fields`."""


class UnauthenticatedError(ApiError):
    """There is no token, or it is invalid or expired."""


class NotAllowedError(ApiError):
    """The token's scopes or the person's role do not allow the request."""


class MissingError(ApiError):
    """The object does not exist, or the person may not see it."""


class RequestConflictError(ApiError):
    """The state has changed, or the idempotency key belongs to another request."""


class TooManyRequestsError(ApiError):
    """A limit is reached; see `retry_after_s`."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidRequestError,
    422: InvalidRequestError,
    401: UnauthenticatedError,
    403: NotAllowedError,
    404: MissingError,
    409: RequestConflictError,
    412: RequestConflictError,
    429: TooManyRequestsError,
}


def refusal(status: int, problem: Mapping[str, Any]) -> ApiError:
    """Return the error for a refusal, of the class of its status."""
    if status == 422 and str(problem.get("reason_code", "")).startswith("idempotency"):
        return RequestConflictError(status, problem)
    return _BY_STATUS.get(status, ApiError)(status, problem)
