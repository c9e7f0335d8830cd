"""Readers of values from parsed JSON or YAML, one per type. They collect errors and never raise."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from django.utils.translation import gettext as _

from evenshare_core.units import COUNT_MAX
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop
from tenants.language import number as numeral

SLUG = re.compile(r"[-a-zA-Z0-9_]{1,63}")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Rounds store micro-credits in 64 bits, hence at most 12 digits.
CREDITS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")

PLAIN_CONTROLS = frozenset("\t\n")
REASON_MAX = 200  # the limit of the audit log
NAME_HINT = gettext_noop("1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends.")
NOT_TEXTS = gettext_noop("must be a list of strings")
NOT_AMOUNT = gettext_noop("must be an amount from 0 to 999,999,999,999.999999")
ENDS_FIRST = gettext_noop("Its end must be after its start.")
INSTANT_HINT = gettext_noop("Use RFC 3339 with an offset: 2026-12-01T00:00:00Z.")


def whole(
    given: Mapping[str, object],
    name: str,
    errors: FieldErrors,
    *,
    least: int,
    most: int = COUNT_MAX,
    required: bool = False,
) -> int | None:
    """Read a whole number within [least, most]; return None if it is missing or invalid."""
    if name not in given:
        if required:
            errors.add(
                name,
                _("is required"),
                _("Use a whole number from {least} on.").format(least=least),
                "required",
            )
        return None
    value = given[name]
    # bool is an int in Python, but `true` is not a number of GPUs.
    if not isinstance(value, int) or isinstance(value, bool):
        errors.add(name, _("must be a whole number"), _("Use no quotes and no decimals."))
        return None
    if not least <= value <= most:
        errors.add(
            name,
            _("must be from {least} to {most}").format(least=least, most=most),
            code="out_of_range",
        )
        return None
    return value


def text(value: object, name: str, errors: FieldErrors, *, most_bytes: int) -> str | None:
    """Read a text that every program and Postgres accept; return None if it is invalid."""
    if not isinstance(value, str):
        errors.add(name, _("must be a text"), _("Put the text in quotes."))
        return None
    if len(value) > most_bytes:  # Checked before any step whose time depends on the length.
        errors.add(
            name,
            _("is longer than {most} bytes").format(most=numeral(most_bytes)),
            code="too_long",
        )
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        errors.add(name, _("has an unpaired surrogate"), _("Use valid Unicode."), "bad_text")
        return None
    if size > most_bytes:
        errors.add(
            name,
            _("is longer than {most} bytes").format(most=numeral(most_bytes)),
            code="too_long",
        )
        return None
    for sign in value:
        if sign not in PLAIN_CONTROLS and unicodedata.category(sign) == "Cc":
            reason = _("has the control character U+{code:04X}").format(code=ord(sign))
            errors.add(name, reason, _("Only tab and newline are allowed."), "bad_text")
            return None
    return value


def texts(
    given: Mapping[str, object], name: str, errors: FieldErrors, *, most: int
) -> tuple[str, ...]:
    """Read a list of short names; return an empty one if it is missing or invalid."""
    value = given.get(name, [])
    if not isinstance(value, list | tuple):
        errors.add(name, _(NOT_TEXTS), _('Use ["a", "b"].'))
        return ()
    if len(value) > most:
        errors.add(name, _("has more than {most} items").format(most=most), code="too_long")
        return ()
    read = [text(item, f"{name}[{i}]", errors, most_bytes=64) for i, item in enumerate(value)]
    return tuple(item for item in read if item is not None)


def name(given: Mapping[str, object], errors: FieldErrors) -> str:
    """Read a job's name; return an empty text if it is missing or invalid."""
    if "name" not in given:
        return ""
    value = given["name"]
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    errors.add("name", _("is not a usable name"), _(NAME_HINT), "bad_text")
    return ""


def credits(given: Mapping[str, object], name: str, errors: FieldErrors) -> Decimal | None:  # noqa: A001 - the unit's word
    """Read credits with at most six decimals; return None if they are missing or invalid."""
    if name not in given:
        return None
    value = given[name]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12:
        return Decimal(value)
    # An exponent is refused before it is expanded: 1e999999999 would fill the memory.
    if isinstance(value, Decimal) and value.is_finite() and -7 < value.adjusted() < 12:
        value = format(value, "f")
    if isinstance(value, str) and CREDITS.fullmatch(value):
        return Decimal(value)
    hint = _('Set credits per GPU-hour as a text, such as "0.25", with at most six decimals.')
    errors.add(name, _(NOT_AMOUNT), hint)
    return None


def slug(given: Mapping[str, object], name: str, errors: FieldErrors, place: str = "") -> str:
    """Read a required name; return an empty text if it is invalid."""
    value = given.get(name)
    if isinstance(value, str) and SLUG.fullmatch(value):
        return value
    errors.add(place + name, _("must be a name"), _("1 to 63 letters, digits, - and _."))
    return ""


def line(given: Mapping[str, object], name: str, errors: FieldErrors, *, most_bytes: int) -> str:
    """Read an optional line of text; return an empty text if it is missing or invalid."""
    value = text(given.get(name, ""), name, errors, most_bytes=most_bytes)
    if value and not value.isprintable():
        errors.add(name, _("must be one line of printable characters"))
        return ""
    return (value or "").strip()


def number(
    given: Mapping[str, object],
    name: str,
    errors: FieldErrors,
    *,
    most: int,
    least: int = 0,
    place: str = "",
) -> int | None:
    """Read a whole number; return None if it is missing, null or invalid."""
    if given.get(name) is None:
        return None
    return whole({place + name: given[name]}, place + name, errors, least=least, most=most)


def instant(
    given: Mapping[str, object], name: str, errors: FieldErrors, place: str = ""
) -> datetime | None:
    """Read an instant; return None if it is missing, null or invalid."""
    value = given.get(name)
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) and len(value) < 40 else None
        if at is not None and at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    errors.add(place + name, _("must be an instant"), _(INSTANT_HINT))
    return None
