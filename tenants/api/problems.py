"""Refusals of the API, each with a published reason code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework.exceptions import APIException


class Problem(APIException):
    """One refusal; `errors` name fields: {"field", "reason", "hint"}."""

    def __init__(
        self,
        status: int,
        reason_code: str,
        detail: str,
        errors: Sequence[dict[str, str]] = (),
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
    errors = [{"field": field, "reason": reason, "hint": hint}]
    return Problem(400, "invalid", f"{field} {reason}.", errors)


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
            {"field": name[:80], "reason": "is not a field of this request", "hint": hint}
            for name in extras[:100]
        ]
        raise Problem(400, "invalid", "The request has fields that are not known.", errors)
    return data
