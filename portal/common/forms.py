"""Fields of the console's forms: typed texts, their values, and errors."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from django.http import QueryDict
from django.utils.translation import gettext as _

from portal.charts.zones import MONTHS
from tenants.input.requests import Request, RequestField, Shape, read_request, request_fields

MOST_DIGITS = 18
R = TypeVar("R", bound=Request)


@dataclass(frozen=True, slots=True)
class Field:
    """A field as templates/components/field.html draws it.

    `kind`: text, number, amount, check or select; `choices`: (value, text); `value`: as typed.
    """

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    hint: str = ""
    unit: str = ""
    error: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    required: bool = False


def whole(text: str | None) -> int | None:
    """Return a whole number, or None if the text is not one."""
    text = (text or "").strip()
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS):
        return None
    return int(sign + digits)


def amount(text: str | None) -> Decimal | None:
    """Return a finite decimal number, or None if the text is not one."""
    try:
        value = Decimal((text or "").strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value.adjusted()) <= MOST_DIGITS else None


def instant(text: str | None) -> datetime | None:
    """Parse "2026-11-21 08:00", with or without T and seconds, as UTC; None if invalid."""
    try:
        value = datetime.fromisoformat((text or "").strip())
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: beyond the first or last date of Python
        return None


def day_typed(typed: str | None) -> str:
    """Return a day such as 2026-12-01 as its first instant in UTC; other text unchanged."""
    typed = (typed or "").strip()
    try:
        return f"{date.fromisoformat(typed)}T00:00:00Z"
    except ValueError:
        return typed


def instant_text(at: datetime | None) -> str:
    """Return an instant as a field shows it, without zero seconds."""
    if at is None:
        return ""
    at = at.astimezone(UTC)
    exact = at.second or at.microsecond
    return at.strftime("%Y-%m-%d %H:%M:%S.%f" if exact else "%Y-%m-%d %H:%M").rstrip()


def day_text(at: datetime) -> str:
    """Return "21 Nov" for a column heading, with the time unless it is midnight."""
    at = at.astimezone(UTC)
    day = f"{at.day} {_(MONTHS).split()[at.month - 1]}"
    return day if not (at.hour or at.minute or at.second) else f"{day} {at:%H:%M} UTC"


def text(posted: Mapping[str, str], name: str) -> str:
    return str(posted.get(name, "")).strip()


def typed_request(request: type[R], posted: QueryDict, **more: object) -> R:
    """Return the request from a form; `more` are fields that are not in the form.

    Raises:
        InvalidInputError: with all errors, by field of the request.
    """
    return read_request(request, {**typed_fields(request, posted), **more})


def typed_fields(request: type[Request], posted: QueryDict) -> dict[str, object]:
    """Return the form's typed values by request field, without empty ones."""
    return {
        name: value
        for name, field in request_fields(request).items()
        if (value := _value(field, posted)) not in ("", [])
    }


def _value(field: RequestField, posted: QueryDict) -> object:
    """Return the typed value by the field's shape; unreadable input stays text."""
    typed = text(posted, field.name)
    if field.shape == Shape.TEXTS:
        return posted.getlist(field.name)
    if field.shape == Shape.WHOLE:
        number = whole(typed)
        return typed if number is None else number
    if field.shape == Shape.AMOUNT:
        credits_typed = amount(typed)
        return typed if credits_typed is None else credits_typed
    if field.shape == Shape.INSTANT:
        at = instant(typed)
        return typed if at is None else at.isoformat()
    return typed


def request_inputs(
    request: type[Request],
    names: Iterable[str],
    typed: Mapping[str, str],
    errors: Mapping[str, str],
    *,
    defaults: Mapping[str, str] | None = None,
    choices: Mapping[str, tuple[tuple[str, str], ...]] | None = None,
) -> list[Field]:
    """Return form inputs for fields of a request, as typed; `choices` are a field's options."""
    fields = request_fields(request)
    chosen = choices or {}
    return [
        Field(
            name,
            _(fields[name].input.label),
            text(typed, name) or (defaults or {}).get(name, ""),
            _kind(fields[name], chosen),
            _(fields[name].input.hint),
            _(fields[name].input.unit),
            errors.get(name, ""),
            chosen.get(name, ()),
            required=fields[name].is_required,
        )
        for name in names
    ]


def _kind(field: RequestField, chosen: Container[str]) -> str:
    if field.name in chosen:
        return "select"
    return {Shape.WHOLE: "number", Shape.AMOUNT: "amount"}.get(field.shape, "text")
