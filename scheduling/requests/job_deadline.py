"""Readers of the fields about a job's end: class, deadline, steps, stopping criterion.

The functions are pure.

Source: docs/deadlines.md.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from django.utils.translation import gettext as _

from evenshare_core.deadlines.declared import (
    DeclaredStep,
    StepError,
    dated_steps,
    read_steps,
    step_texts,
)
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.domain.instants import from_us, to_us
from scheduling.requests.core_errors import core_error
from tenants.input import readers
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

CLASSES = (
    DeadlineClass.BEST_EFFORT.value,
    DeadlineClass.STRICT.value,
    DeadlineClass.SOFT.value,
)
# Source: the planning horizon of UniSched's Selector.
AHEAD_MAX = timedelta(weeks=4)
TEXT_MAX = 40
DEADLINE_HINT = gettext_noop(
    "Enter a duration such as 2h30m or 5400, or a time such as 2026-12-01T00:00:00Z."
)
STEPS_HINT = gettext_noop('Enter percent:points, such as "100:100 110:80 120:50 150:20".')
STOP_HINT = gettext_noop("Enter a metric, >= or <= and a number, such as accuracy>=0.93.")
RULES = {">=": "at_least", "<=": "at_most"}
_SIGNS = {rule: sign for sign, rule in RULES.items()}

NO_INSTANT = gettext_noop("is neither a duration nor a time")
_ANY_INSTANT = from_us(0)
_SECONDS = re.compile(r"[0-9]{1,8}", re.ASCII)
_DURATION = re.compile(
    r"(?:([0-9]{1,3})d)?(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?", re.ASCII
)
_STOP = re.compile(
    r"([A-Za-z_][-A-Za-z0-9_./]{0,62})\s*(>=|<=)\s*(-?[0-9]{1,12}(?:\.[0-9]{1,12})?)", re.ASCII
)


class StopWhen(NamedTuple):
    """A stopping criterion: metric, comparison and target; empty if no criterion is given."""

    metric: str = ""
    rule: str = ""
    value: Decimal | None = None


def read_job_class(given: Mapping[str, object], errors: FieldErrors) -> str | None:
    """Read the class; the default is strict for a job with a deadline, else best effort."""
    value = given.get("job_class", "")
    deadline = given.get("deadline", "")
    has_deadline = not (isinstance(deadline, str) and not deadline.strip())
    if value == "":
        value = DeadlineClass.STRICT.value if has_deadline else DeadlineClass.BEST_EFFORT.value
    if not isinstance(value, str) or value not in CLASSES:
        errors.add(
            "job_class",
            _("is not one of the choices"),
            _("Choose one of {classes}.").format(classes=", ".join(CLASSES)),
        )
        return None
    if has_deadline and not DeadlineClass(value).has_deadline:
        hint = _("Remove the deadline, or use strict_slo or soft_slo.")
        errors.add("job_class", _("takes no deadline"), hint)
    if not has_deadline and DeadlineClass(value).has_deadline:
        errors.add(
            "deadline",
            _("is required for {value}").format(value=value),
            _(DEADLINE_HINT),
            "required",
        )
    return value


def read_deadline(given: Mapping[str, object], errors: FieldErrors) -> str | None:
    """Read a deadline as text: a duration after the submission, or a date and time."""
    value = given.get("deadline", "")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**8:
        value = str(value)
    text = value.strip() if isinstance(value, str) and len(value) <= TEXT_MAX else None
    if text == "":
        return ""
    if text is None or deadline_at(text, _ANY_INSTANT) is None:
        errors.add("deadline", _(NO_INSTANT), _(DEADLINE_HINT))
        return None
    return text


def deadline_at(text: str, submitted: datetime) -> datetime | None:
    """Return the time of a deadline, for a job submitted at `submitted`.

    Return None if the text is not a deadline.
    """
    if _SECONDS.fullmatch(text):
        return submitted + timedelta(seconds=int(text))
    match = _DURATION.fullmatch(text)
    if match is not None and text:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return submitted + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return readers.instant({"deadline": text}, "deadline", FieldErrors())


def duration_text(length: timedelta) -> str:
    """Format a duration as in deadlines, such as 2h30m; rounded up to whole seconds."""
    seconds = -(-length // timedelta(seconds=1))
    parts = (("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1))
    written = ""
    for sign, size in parts:
        count, seconds = divmod(seconds, size)
        written += f"{count}{sign}" if count else ""
    return written


def check_deadline(
    text: str, job_class: str, steps: tuple[str, ...], now: datetime, errors: FieldErrors
) -> None:
    """Add an error if a deadline has passed or is too far ahead to plan; `now` is pool time."""
    at = deadline_at(text, now)
    if at is None:
        return
    if at <= now:
        hint = _("The pool's clock reads {now:%Y-%m-%dT%H:%M:%SZ}: enter a later time.").format(
            now=now
        )
        errors.add("deadline", _("is over already"), hint, "out_of_range")
        return
    kind = DeadlineClass(job_class)
    last = dated_steps(to_us(now), to_us(at), kind, parsed_steps(steps))[-1]
    if last.by_us > to_us(now + AHEAD_MAX):
        is_deadline = last.by_us == to_us(at)
        hint = _("Rounds plan at most four weeks ahead: enter an earlier time.")
        errors.add(
            "deadline",
            _("is more than four weeks ahead")
            if is_deadline
            else _("has its last step more than four weeks ahead"),
            hint,
            "out_of_range",
        )


def read_steps_field(given: Mapping[str, object], errors: FieldErrors) -> tuple[str, ...]:
    """Read steps. Return an empty tuple and add an error if they are wrong.

    The input is a text or a list of percent:points, or a list of pairs.
    """
    value = given.get("deadline_steps", "")
    if value in ("", [], ()):
        return ()
    if given.get("job_class") != DeadlineClass.SOFT.value:
        hint = _("Use the class soft_slo, or remove the steps.")
        errors.add("deadline_steps", _("are only for the class soft_slo"), hint)
        return ()
    rows = _step_rows(value)
    if rows is None:
        errors.add("deadline_steps", _("must be a list of steps"), _(STEPS_HINT))
        return ()
    try:
        return tuple(":".join(row) for row in step_texts(read_steps(rows)))
    except StepError as error:
        place = "" if error.place is None else f"[{error.place}]"
        errors.add(f"deadline_steps{place}", core_error(str(error)), _(STEPS_HINT))
        return ()


def _step_rows(value: object) -> list[list[object]] | None:
    """Return unchecked pairs of percent and points, or None if `value` is not a list."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or len(value) > 2 * readers.REASON_MAX:
        return None
    rows: list[list[object]] = []
    for item in value:
        if isinstance(item, str):
            rows += [list(part.split(":")) for part in item[: readers.REASON_MAX * 4].split()]
        else:
            rows.append(list(item) if isinstance(item, list | tuple) else [item])
    return rows


def parsed_steps(texts: tuple[str, ...]) -> tuple[DeclaredStep, ...]:
    """Parse the steps of a request."""
    return read_steps([text.split(":") for text in texts]) if texts else ()


def read_stop_field(given: Mapping[str, object], errors: FieldErrors) -> str | None:
    """Read a stopping criterion such as accuracy>=0.93, which requires a maximum of iterations."""
    value = given.get("stop_when", "")
    if value == "":
        return ""
    match = _STOP.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        errors.add("stop_when", _("is not a stopping criterion"), _(STOP_HINT))
        return None
    if "iterations" not in given:
        hint = _("Give the maximum number of iterations.")
        errors.add("iterations", _("is required with stop_when"), hint, "required")
    return "".join(match.groups())


def parsed_stop(text: str) -> StopWhen:
    """Parse the stopping criterion of a request."""
    match = _STOP.fullmatch(text)
    if match is None:
        return StopWhen()
    return StopWhen(match[1], RULES[match[2]], Decimal(match[3]))


def stop_text(stop: StopWhen) -> str:
    """Format a criterion as in requests; "" if there is no criterion."""
    if not stop.metric or stop.value is None:
        return ""
    text = format(stop.value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{stop.metric}{_SIGNS[stop.rule]}{text}"
