"""Readers of a pool's executor options, from a JSON object or its text."""

import json
from decimal import Decimal
from typing import Any, NoReturn

from django.utils.translation import gettext as _

from tenants.input.errors import FieldErrors, invalid
from tenants.language import gettext_noop

FIELD = "executor_options"
# The limit is the same as for a REST body.
DEPTH_MAX = 32
TOO_DEEP = gettext_noop("is nested more than {most} levels deep")


def parse_executor_options(written: str) -> dict[str, Any]:
    """Parse executor options from JSON text.

    Raises:
        InvalidInputError: the text is no JSON object, or repeats a name.
    """
    try:
        value = json.loads(written, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        reason = _("Line {line}, column {column} is not JSON: {error}.").format(
            line=error.lineno, column=error.colno, error=error.msg
        )
        raise invalid(FIELD, reason) from error
    except RecursionError as error:
        raise invalid(FIELD, _(TOO_DEEP).format(most=DEPTH_MAX)) from error
    except ValueError as error:
        raise invalid(FIELD, _("Invalid JSON: {error}.").format(error=error)) from error
    errors = FieldErrors()
    options = read_executor_options(value, errors)
    errors.raise_any()
    return options


def read_executor_options(value: object, errors: FieldErrors) -> dict[str, Any]:
    """Return a JSON object in the form that a pool stores; decimals become floats."""
    if not isinstance(value, dict):
        errors.add(FIELD, _("must be an object"), _('Use {"name": value}.'))
        return {}
    if _is_deep(value, DEPTH_MAX):
        errors.add(FIELD, _(TOO_DEEP).format(most=DEPTH_MAX))
        return {}
    if not _is_printable(value):
        errors.add(FIELD, _("has characters that are not allowed"))
        return {}
    floats: dict[str, Any] = _with_floats(value)
    return floats


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise ValueError(f"{name} is given twice")
        read[name] = value
    return read


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _is_deep(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(part, levels - 1) for part in inner)


def _is_printable(value: object) -> bool:
    """Return whether all texts in a JSON value are single lines that a database column accepts."""
    if isinstance(value, dict):
        return all(_is_printable(part) for item in value.items() for part in item)
    if isinstance(value, list):
        return all(map(_is_printable, value))
    return not isinstance(value, str) or value.isprintable()


def _with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value
