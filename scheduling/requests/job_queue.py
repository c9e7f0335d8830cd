"""Reads the fields of a job's request that say when it may start."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.utils.translation import gettext as _

from scheduling.requests.job_deadline import NO_INSTANT, TEXT_MAX, deadline_at
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

AHEAD_MAX = timedelta(days=366)
PRIORITY_MAX = 100
_HINT = gettext_noop(
    "A duration from now such as 2h30m, or a time such as 2026-12-01T00:00:00Z (pool time)."
)
_ANY_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)


def read_not_before(given: Mapping[str, object], errors: FieldErrors) -> str | None:
    """Read an earliest start as text: a duration after the submission, or a date and time."""
    value = given.get("not_before", "")
    text = value.strip() if isinstance(value, str) and len(value) <= TEXT_MAX else None
    if text and deadline_at(text, _ANY_INSTANT) is None:
        text = None
    if text is None:
        errors.add("not_before", _(NO_INSTANT), _(_HINT))
    return text


def earliest_start(text: str, now: datetime) -> datetime | None:
    """Return the earliest start of a job submitted at `now`; None if it may start at once."""
    at = deadline_at(text, now) if text else None
    return at if at is not None and at > now else None


def check_not_before(text: str, now: datetime, errors: FieldErrors) -> None:
    """Add an error if an earliest start is more than a year ahead; `now` is pool time."""
    at = earliest_start(text, now)
    if at is not None and at > now + AHEAD_MAX:
        errors.add("not_before", _("is more than a year ahead"), "", "out_of_range")


def read_held(given: Mapping[str, object], errors: FieldErrors) -> bool:
    """Read whether the job is submitted as held."""
    value = given.get("held", False)
    if not isinstance(value, bool):
        errors.add("held", _("must be true or false"))
        return False
    return value
