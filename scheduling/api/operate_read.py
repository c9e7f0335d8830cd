"""Reads the bodies of an operator's edits: what is there, of the right kind, all errors at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from scheduling.services.fields import SLUG, Findings, text, whole
from tenants.api.problems import Problem, fields_only

INSTANT_HINT = "Write RFC 3339 with its offset: 2026-12-01T00:00:00Z."
REASON_BYTES, NAME_BYTES = 800, 480


def body_of(data: Any, known: Sequence[str]) -> tuple[dict[str, Any], Findings]:
    """Return a body with known fields alone, and where what is wrong with them is noted.

    Raises:
        Problem: it has others, or is no object.
    """
    return dict(fields_only(data, known)), Findings()


def refuse(found: Findings) -> None:
    """Refuse a body in which something was wrong.

    Raises:
        Problem: with all findings.
    """
    if found.errors:
        errors = [{"field": e.field, "reason": e.reason, "hint": e.hint} for e in found.errors]
        raise Problem(400, "invalid", "Nothing was changed: fields are wrong.", errors)


def slug(given: Mapping[str, Any], name: str, found: Findings, place: str = "") -> str:
    """Read a required name; empty where it is wrong."""
    value = given.get(name)
    if isinstance(value, str) and SLUG.fullmatch(value):
        return value
    found.add(place + name, "must be a name", "1 to 63 letters, digits, - and _.")
    return ""


def words(
    given: Mapping[str, Any], name: str, found: Findings, *, most_bytes: int = REASON_BYTES
) -> str:
    """Read an optional line of text; empty where it is absent or wrong."""
    value = text(given.get(name, ""), name, found, most_bytes=most_bytes)
    if value and not value.isprintable():
        found.add(name, "must be one line of printable characters")
        return ""
    return (value or "").strip()


def number(
    given: Mapping[str, Any],
    name: str,
    found: Findings,
    *,
    most: int,
    least: int = 0,
    place: str = "",
) -> int | None:
    """Read a whole number; None where it is absent, null or wrong."""
    if given.get(name) is None:
        return None
    return whole({place + name: given[name]}, place + name, found, least=least, most=most)


def instant(
    given: Mapping[str, Any], name: str, found: Findings, place: str = ""
) -> datetime | None:
    """Read an instant; None where it is absent, null or wrong."""
    value = given.get(name)
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) and len(value) < 40 else None
        if at is not None and at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    found.add(place + name, "must be an instant", INSTANT_HINT)
    return None


def options(given: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    """Read a policy's options by name; what they may be is the policy's affair."""
    value = given.get("options", {})
    if not isinstance(value, dict):
        found.add("options", "must be an object", 'Write {"name": value}.')
        return {}
    read = {}
    for name, item in list(value.items())[:100]:
        plain = _plain(item)
        if not SLUG.fullmatch(name):
            found.add(f"options.{ascii(name)[1:-1][:60]}", "is not a name of an option")
        elif plain is None:
            found.add(f"options.{name}", "must be a text, a number or true or false")
        else:
            read[name] = plain
    return read


def _plain(value: Any) -> Any:
    """A value as options may have it: a number with a point as a float; None where it is other."""
    if isinstance(value, Decimal):
        return float(value) if isfinite(float(value)) else None
    return value if isinstance(value, str | int) else None
