"""Checks a pool's `executor_options` as its executor reads them.

The executor converts them strictly to the struct `ExecutorTraits.options_type`. Here each field is
converted separately, so that all errors are reported at once.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils.translation import gettext as _
from msgspec import NODEFAULT, structs

from tenants.input.errors import FieldErrors
from tenants.language import number

FIELD = "executor_options"
BYTES_MAX = 16_384
_AT = re.compile(r" - at `\$\.(\w+)")
_PLACE = re.compile(r" - at .*\Z", re.DOTALL)


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty struct, for executors that have no options."""


def check_options(
    kind: type[msgspec.Struct], values: Mapping[str, Any], errors: FieldErrors
) -> None:
    """Add the errors in a pool's options to `errors`, as `executor_options.NAME`."""
    before = len(list(errors))
    if len(msgspec.json.encode(values)) > BYTES_MAX:
        errors.add(FIELD, _("is longer than {most} bytes").format(most=number(BYTES_MAX)))
        return
    known = {field.encode_name: field for field in structs.fields(kind)}
    there_are = (
        _("Options: {known}.").format(known=", ".join(known))
        if known
        else _("This executor has no options.")
    )
    for name in values:
        if name not in known:
            errors.add(f"{FIELD}.{ascii(name)[1:-1][:60]}", _("is not an option"), there_are)
    for name, field in known.items():
        if name in values:
            try:
                msgspec.convert(values[name], field.type)
            except msgspec.ValidationError as error:
                errors.add(f"{FIELD}.{name}", _sentence(error), _default_text(field))
        elif field.required:
            errors.add(f"{FIELD}.{name}", _("is required"))
    if len(list(errors)) == before:
        _check_whole(kind, values, errors)


def _check_whole(
    kind: type[msgspec.Struct], values: Mapping[str, Any], errors: FieldErrors
) -> None:
    """Add an error if each option is valid, but their combination is not."""
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        place = _AT.search(str(error))
        errors.add(f"{FIELD}.{place[1]}" if place else FIELD, _sentence(error))


def default_options(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the optional options with their defaults."""
    return {
        field.encode_name: _default(field) for field in structs.fields(kind) if not field.required
    }


def required_options(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in structs.fields(kind) if field.required]


def _sentence(error: msgspec.ValidationError) -> str:
    """Return msgspec's message without its JSON path: "Expected int >= 0"."""
    said = _PLACE.sub("", str(error)).replace("`", "")
    return said.replace("Expected str matching regex", "Expected a text of the form") + "."


def _default(field: structs.FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


def _default_text(field: structs.FieldInfo) -> str:
    if field.required:
        return ""
    return f"The default is {msgspec.json.encode(_default(field)).decode()}."
