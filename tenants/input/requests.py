"""Requests as structs: each field is declared once for readers, descriptions and forms.

A request is a `Request` whose fields have types, bounds and a description (`msgspec.Meta`), and an
`Input` for the rest. This module reads requests. REST's schema (`tenants.api.request_schemas`),
forms, YAML and the command line's options use the same fields. Pure.
"""

import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, TypeVar

import msgspec
from django.utils.translation import gettext as _
from msgspec import inspect

from evenshare_core.units import COUNT_MAX
from tenants.input import readers
from tenants.input.errors import FieldErrors, invalid
from tenants.language import number

TEXT_MAX, TEXTS_MAX = 800, 1000


class Shape(StrEnum):
    """The type of a field's values."""

    TEXT = "text"
    WHOLE = "whole"
    AMOUNT = "amount"
    INSTANT = "instant"
    TEXTS = "texts"
    PAIRS = "pairs"
    AMOUNTS = "amounts"
    LISTS = "lists"
    ROWS = "rows"
    FLAG = "flag"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Facts of a field beyond its type, bounds and description.

    `label`: the field's name in forms; empty if no form has the field. `hint`: the text below the
    label, by default the description. `unit`: the unit of its values. `example`: the placeholder of
    an empty input. `choices`: the allowed texts. `option`: the command line's option, by default
    made from the field's name. Empty: the field has no option; `--`: the arguments after this sign.
    `complaint` and `advice` replace the reader's reason and hint. `read` replaces the reader of the
    field's type. `is_contextual`: the service reads the field, because this needs more than the
    request. `is_shown`: answers repeat the field.
    """

    label: str = ""
    hint: str = ""
    unit: str = ""
    example: str = ""
    choices: tuple[str, ...] = ()
    option: str | None = None
    complaint: str = ""
    advice: str = ""
    read: Callable[[Mapping[str, object], FieldErrors], object] | None = None
    is_contextual: bool = False
    is_shown: bool = False


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a request. `least` and `most` bound a number, or a text's or list's length."""

    name: str
    attribute: str
    shape: Shape
    is_required: bool
    is_nullable: bool
    default: object
    description: str
    least: int | None
    most: int | None
    pattern: str
    item: inspect.Type | None
    input: Input

    @property
    def option(self) -> str:
        """Return its option of the command line; empty if it has none."""
        made = f"--{self.name.replace('_', '-')}"
        return made if self.input.option is None else self.input.option

    @property
    def hint(self) -> str:
        """Return the text below its label in a form, in the language of the page."""
        return _(self.input.hint or self.description)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a user or program. `NOUN` is its name in errors.

    With `NULL_IS_ABSENT` a null counts as a missing field. Otherwise a null is the value of a field
    that may be None, and an error in any other field.
    """

    NOUN: ClassVar[str] = "this request"
    NULL_IS_ABSENT: ClassVar[bool] = True


R = TypeVar("R", bound=Request)


@cache
def request_fields(request: type[Request]) -> Mapping[str, RequestField]:
    """Return the fields of a request by name, in their order."""
    hints = typing.get_type_hints(request, include_extras=True)
    info = inspect.type_info(request)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - a Request is one
    return {one.encode_name: _field(one, hints[one.name]) for one in info.fields}


def _field(one: inspect.Field, hint: Any) -> RequestField:
    extras = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Input)]
    kind, description, is_nullable = one.type, "", False
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            description = (kind.extra_json_schema or {}).get("description", description)
            kind = kind.type
        else:
            is_nullable = True
            kind = next(part for part in kind.types if not isinstance(part, inspect.NoneType))
    shape, least, most = _shape(kind)
    # msgspec omits a default of UNSET.
    default = msgspec.UNSET if one.default is msgspec.NODEFAULT else one.default
    if one.default_factory is not msgspec.NODEFAULT:
        default = one.default_factory()
    return RequestField(
        name=one.encode_name,
        attribute=one.name,
        shape=shape,
        is_required=one.required,
        is_nullable=is_nullable,
        default=default,
        description=description,
        least=least,
        most=most,
        pattern=getattr(kind, "pattern", None) or "",
        item=getattr(kind, "item_type", None),
        # The last annotation belongs to the field, an earlier one to its type.
        input=extras[-1] if extras else Input(),
    )


def _shape(kind: inspect.Type) -> tuple[Shape, int | None, int | None]:
    match kind:
        case inspect.StrType():
            return Shape.TEXT, kind.min_length, kind.max_length
        case inspect.IntType():
            return Shape.WHOLE, kind.ge, kind.le
        case inspect.VarTupleType(item_type=inspect.StrType()):
            return Shape.TEXTS, kind.min_length, kind.max_length
        case inspect.VarTupleType(item_type=inspect.DictType()):
            return Shape.ROWS, kind.min_length, kind.max_length
        case inspect.DictType():
            shape = _SHAPES_OF_VALUES.get(type(kind.value_type), Shape.OTHER)
            return shape, kind.min_length, kind.max_length
    return _PLAIN_SHAPES.get(type(kind), Shape.OTHER), None, None


_PLAIN_SHAPES: Mapping[type[inspect.Type], Shape] = {
    inspect.BoolType: Shape.FLAG,
    inspect.DecimalType: Shape.AMOUNT,
    inspect.DateTimeType: Shape.INSTANT,
}
_SHAPES_OF_VALUES: Mapping[type[inspect.Type], Shape] = {
    inspect.StrType: Shape.PAIRS,
    inspect.DecimalType: Shape.AMOUNTS,
    inspect.VarTupleType: Shape.LISTS,
}


def read_request(request: type[R], raw: object) -> R:
    """Return the request of `raw` (a mapping, as parsed from JSON).

    Raises:
        InvalidInputError: with all errors, in the order of fields.
    """
    errors = FieldErrors()
    given = given_fields(request, raw)
    values = read_fields(request, given, errors)
    refuse_unknown(request, given, errors)
    errors.raise_any(tuple(request_fields(request)))
    return make_request(request, values)


def given_fields(request: type[Request], raw: object) -> dict[str, object]:
    """Return the fields that were sent.

    Raises:
        InvalidInputError: the request is not an object.
    """
    if not isinstance(raw, Mapping):
        raise invalid("", _("must be an object"), _("Send fields by name."))
    skipped = request.NULL_IS_ABSENT
    return {str(name): value for name, value in raw.items() if not (skipped and value is None)}


def read_fields(
    request: type[Request], given: Mapping[str, object], errors: FieldErrors
) -> dict[str, object]:
    """Read a request's fields, except contextual ones, which the caller reads.

    A field that is missing or invalid gets its default, or is left out if it has none.
    """
    values: dict[str, object] = {}
    for name, field in request_fields(request).items():
        about = field.input
        if about.is_contextual:
            continue
        if name not in given and not field.is_required and about.read is None:
            values[name] = field.default
        elif field.is_nullable and name in given and given[name] is None:
            values[name] = None
        elif (value := _read(field, given, errors)) is not None:
            values[name] = value
        elif not field.is_required:
            values[name] = field.default
    return values


def refuse_unknown(
    request: type[Request], given: Mapping[str, object], errors: FieldErrors
) -> None:
    """Add an error for each unknown field; unknown fields are refused, never dropped."""
    names = request_fields(request)
    for extra in sorted(given.keys() - names.keys()):
        reason = _("is not a field of {noun}").format(noun=_(request.NOUN))
        errors.add(
            extra[:80], reason, _("Fields: {names}.").format(names=", ".join(names)), "unknown"
        )


def make_request(request: type[R], values: Mapping[str, object]) -> R:
    """Build a request from the values of its fields, by name."""
    fields = request_fields(request)
    return request(**{fields[name].attribute: value for name, value in values.items()})


def _read(field: RequestField, given: Mapping[str, object], errors: FieldErrors) -> object:
    """Return a field's value; if it is missing or invalid, add an error and return None."""
    if field.input.read is not None:
        return field.input.read(given, errors)
    if not (field.input.complaint or field.input.advice):
        return _by_shape(field, given, errors)
    own = FieldErrors()
    value = _by_shape(field, given, own)
    if own and field.input.complaint:
        code = "required" if field.name not in given else "bad_text" if field.pattern else "invalid"
        advice = _(field.input.advice)
        errors.add(field.name, _(field.input.complaint), advice, code)
        return None
    errors.extend(replace(one, hint=one.hint or _(field.input.advice)) for one in own)
    return value


def _by_shape(field: RequestField, given: Mapping[str, object], errors: FieldErrors) -> object:
    name, least = field.name, field.least or 0
    if field.shape == Shape.WHOLE:
        most = COUNT_MAX if field.most is None else field.most
        return readers.whole(
            given, name, errors, least=least, most=most, required=field.is_required
        )
    if name not in given:
        if field.is_required:
            errors.add(name, _("is required"), code="required")
        return None
    if field.input.choices:
        return _choice(field, given[name], errors)
    if field.shape == Shape.TEXT:
        return _text(field, given, errors)
    if field.shape == Shape.TEXTS:
        most = TEXTS_MAX if field.most is None else field.most
        before = len(errors.errors)
        read = readers.texts(given, name, errors, most=most)
        if len(read) < least and len(errors.errors) == before:
            errors.add(name, _("has fewer than {least} items").format(least=least))
        return read
    return _READERS.get(field.shape, _as_given)(given, name, errors)


def _as_given(given: Mapping[str, object], name: str, _: FieldErrors) -> object:
    return given[name]


_READERS: Mapping[Shape, Callable[[Mapping[str, object], str, FieldErrors], object]] = {
    Shape.AMOUNT: readers.credits,
    Shape.INSTANT: readers.instant,
}


def _choice(field: RequestField, value: object, errors: FieldErrors) -> object:
    if isinstance(value, str) and value in field.input.choices:
        return value
    errors.add(
        field.name,
        _("is not a valid choice"),
        _("Choose one of {choices}.").format(choices=", ".join(field.input.choices)),
    )
    return None


def _text(field: RequestField, given: Mapping[str, object], errors: FieldErrors) -> str | None:
    value = given[field.name]
    if field.pattern:
        if isinstance(value, str) and re.fullmatch(field.pattern, value):
            return value
        errors.add(field.name, _("has the wrong form"), _(field.description))
        return None
    most = TEXT_MAX if field.most is None else field.most
    if isinstance(value, str) and len(value) > most:
        errors.add(
            field.name,
            _("is longer than {most} characters").format(most=number(most)),
            code="too_long",
        )
        return None
    before = len(errors.errors)
    read = readers.line(given, field.name, errors, most_bytes=4 * most)
    if len(read) < (field.least or 0) and len(errors.errors) == before:
        errors.add(field.name, _("is shorter than {least} characters").format(least=field.least))
    return read if len(errors.errors) == before else None
