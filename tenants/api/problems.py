"""Refusals of the API, each with a published reason code."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop
from rest_framework.exceptions import APIException

from tenants.input.errors import ERRORS_MAX, FieldError
from tenants.lockout import LOCKED_TEXT

TOO_LARGE = gettext_noop(
    "The body is too large: at most {count} bytes are read. Nothing was changed; send less at once."
)
# Reason code, for programs and translations -> status, default detail with advice. Pages show some.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "invalid": (400, "The request is malformed: an invalid host, or a NUL in its URL."),
    "is_sweep": (400, "It makes a sweep: POST it to /api/v1/sweeps."),
    **dict.fromkeys(("invalid_spec", "invalid_json", "refused"), (400, "")),
    **dict.fromkeys(("not_authenticated", "bad_token"), (401, "")),
    "bad_credentials": (401, "Username and password do not match."),
    **dict.fromkeys(("scope", "role", "csrf"), (403, "")),
    "forbidden": (403, "This is not allowed."),
    "not_found": (404, "It does not exist, or you may not see it."),
    **dict.fromkeys(("not_sealed", "damaged", "not_kept"), (404, "")),
    "method_not_allowed": (405, ""),
    "not_acceptable": (406, ""),
    "too_slow": (
        408,
        gettext_noop("The body did not arrive in time. Nothing was changed; send it again."),
    ),
    "idempotency_in_flight": (
        409,
        "The first request with this Idempotency-Key is still being served.",
    ),
    **dict.fromkeys(("too_many_tokens", "conflict", "in_use", "other_head"), (409, "")),
    "stale": (
        412,
        "It was changed after you read it: read it again, or use the ETag of this answer.",
    ),
    "too_large": (413, TOO_LARGE.format(count=f"{settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,}")),
    "unsupported_media_type": (415, ""),
    "idempotency_mismatch": (422, "This Idempotency-Key belongs to another request."),
    "if_match_required": (
        428,
        "Send If-Match with the ETag of the GET that this edit is based on.",
    ),
    "throttled": (429, "The tenant exceeds its submission rate; wait a moment."),
    "too_many_pending": (429, ""),
    "locked_out": (429, LOCKED_TEXT),
    "internal": (500, "Internal error; it was logged."),
    "busy": (
        503,
        gettext_noop(
            "Too many requests of this kind are waiting. Nothing was changed; try again in a"
            " moment."
        ),
    ),
    "database_unavailable": (503, gettext_noop("The database does not answer; try again.")),
    "log_unavailable": (
        503,
        "The log cannot be proven at the moment; operators see the cause in /readyz.",
    ),
    "unreadable": (503, ""),
}


class Problem(APIException):
    """A refusal of a request; each of `errors` names a field."""

    def __init__(
        self,
        reason_code: str,
        detail: str = "",
        errors: Sequence[FieldError] = (),
        *,
        retry_after_s: int | None = None,
    ) -> None:
        self.status_code, text = PROBLEMS[reason_code]
        super().__init__(detail or text)
        self.reason_code = reason_code
        self.errors = list(errors)
        self.retry_after_s = retry_after_s


def bad_field(field: str, reason: str, hint: str = "") -> Problem:
    """Return the refusal of one field or parameter."""
    return Problem("invalid", f"{field} {reason}.", [FieldError(field, reason, hint)])


def not_there() -> Problem:
    """Return the same refusal for missing and for hidden objects."""
    return Problem("not_found")


def not_yours(hint: str = "") -> Problem:
    return bad_field("tenant", "is not one of your tenants", hint)


def fields_only(data: Any, known: Sequence[str]) -> dict[str, Any]:
    """Return a body that is an object with known fields; unknown ones are refused, not dropped.

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
        raise Problem("invalid", "The request has unknown fields.", errors)
    return data
