"""Reads the bodies of an operator's edits: what is there, of the right kind, all errors at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

from tenants.api.problems import fields_only
from tenants.input.errors import FieldErrors
from tenants.input.readers import SLUG


def body_of(data: Any, known: Sequence[str]) -> tuple[dict[str, Any], FieldErrors]:
    """Return a body with known fields alone, and where what is wrong with them is noted.

    Raises:
        Problem: it has others, or is no object.
    """
    return dict(fields_only(data, known)), FieldErrors()


def options(given: Mapping[str, Any], errors: FieldErrors) -> dict[str, Any]:
    """Read a policy's options by name; what they may be is the policy's affair."""
    value = given.get("options", {})
    if not isinstance(value, dict):
        errors.add("options", "must be an object", 'Write {"name": value}.')
        return {}
    read = {}
    for name, item in list(value.items())[:100]:
        plain = _plain(item)
        if not SLUG.fullmatch(name):
            errors.add(f"options.{ascii(name)[1:-1][:60]}", "is not a name of an option")
        elif plain is None:
            errors.add(f"options.{name}", "must be a text, a number or true or false")
        else:
            read[name] = plain
    return read


def _plain(value: Any) -> Any:
    """A value as options may have it: a number with a point as a float; None where it is other."""
    if isinstance(value, Decimal):
        return float(value) if isfinite(float(value)) else None
    return value if isinstance(value, str | int) else None
