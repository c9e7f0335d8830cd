"""Refusals of the API, each with a published reason code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework.exceptions import APIException

from tenants.input.errors import ERRORS_MAX, FieldError


class Problem(APIException):
    """One refusal; `errors` name fields."""

    def __init__(
        self,
        status: int,
        reason_code: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        *,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status_code = status
        self.reason_code = reason_code
        self.errors = list(errors)
        self.retry_after_s = retry_after_s


def bad_field(field: str, reason: str, hint: str = "") -> Problem:
    """Return the refusal of one field or parameter."""
    return Problem(400, "invalid", f"{field} {reason}.", [FieldError(field, reason, hint)])


def not_there() -> Problem:
    """Return the one answer for what does not exist and for what is not for the caller."""
    return Problem(404, "not_found", "There is nothing here for you.")


def fields_only(data: Any, known: Sequence[str]) -> dict[str, Any]:
    """Return a body that is an object with known fields; a surplus one is refused, not dropped.

    Raises:
        Problem: it is not.
    """
    if not isinstance(data, dict):
        raise bad_field("", "must be an object", "Send fields by name.")
    extras = sorted(set(data) - set(known))
    if extras:
        hint = f"Fields: {', '.join(known)}."
        errors = [
            FieldError(name[:80], "is not a field of this request", hint)
            for name in extras[:ERRORS_MAX]
        ]
        raise Problem(400, "invalid", "The request has fields that are not known.", errors)
    return data
