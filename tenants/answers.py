"""Answers as structs: selectors return them, pages show them, and REST responds with them.

An answer is an `Answer` whose fields have the names, the order and the types of the REST response.
`plain` converts it to JSON, `tenants.api.answer_schemas` to the API's description. A field only for
pages is `Hidden`; a field whose JSON differs from its type's is `formatted_as`. Pure.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, ClassVar, TypeVar
from uuid import UUID

import msgspec
from msgspec import inspect

from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import PLACES
from evenshare_core.money.rows import Amount, InstantUs, Whole

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
CREDITS = r"^-?[0-9]+\.[0-9]{6}$"
HIDDEN, FORM, STRUCT, FIELD = "hidden", "form", "struct", "field"

Hidden = Annotated[T, msgspec.Meta(extra={HIDDEN: True})]


class Answer(msgspec.Struct, frozen=True):
    """A value in a response. Its name and docstring appear in the API's description.

    `COMPONENT`: the name in the description, if it differs.
    """

    COMPONENT: ClassVar[str] = ""


def formatted_as(form: Callable[[Any], Any], **schema: object) -> msgspec.Meta:
    """Return the annotation of a field that `form` converts to JSON as `schema` describes."""
    return msgspec.Meta(extra={FORM: form}, extra_json_schema=schema)


def answered_as(kind: type[msgspec.Struct]) -> msgspec.Meta:
    """Return the annotation of a field that is converted to an answer of `kind`."""
    return msgspec.Meta(extra={FORM: partial(answer_of, kind), STRUCT: kind})


def described_as(field: Callable[..., Any]) -> msgspec.Meta:
    """Return the annotation of a field that this serializer field describes."""
    return msgspec.Meta(extra={FIELD: field})


def about(description: str, **schema: object) -> msgspec.Meta:
    """Return the annotation of a field with a description; `nullable`: it may be null."""
    return msgspec.Meta(description=description, extra_json_schema=schema)


def one_of(*choices: str) -> msgspec.Meta:
    """Return the annotation of a text field that has one of these values."""
    return msgspec.Meta(extra_json_schema={"enum": list(choices)})


def answer_of(kind: type[S], row: object, /, **more: object) -> S:
    """Build an answer from a row; fields in `more` replace those of the row."""
    names = kind.__struct_fields__
    return kind(**{name: more[name] if name in more else getattr(row, name) for name in names})


def plain(value: Any) -> Any:
    """Return a value for JSON: instants in UTC, credits as texts, durations in seconds.

    Raises:
        TypeError: its type has no JSON form.
    """
    form = _FORMS.get(type(value))
    if form is not None:
        return form(value)
    if isinstance(value, msgspec.Struct):
        return {
            name: plain(field if form is None or field is None else form(field))
            for attribute, name, form in _rendered(type(value))
            for field in (getattr(value, attribute),)
        }
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def time_text(instant: datetime | None) -> str | None:
    """Return an instant as RFC 3339 in UTC with microseconds; None stays None."""
    if instant is None:
        return None
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def credits_text(amount: Decimal) -> str:
    """Return an amount with six places."""
    return str(amount.quantize(PLACES))


def _same(value: T) -> T:
    return value


def _items(values: list[Any] | tuple[Any, ...]) -> list[Any]:
    return [plain(value) for value in values]


def _entries(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(plain(key)): plain(value) for key, value in values.items()}


_FORMS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((str, int, float, bool, type(None)), _same),
    **dict.fromkeys((list, tuple), _items),
    dict: _entries,
    datetime: time_text,
    date: date.isoformat,
    Decimal: credits_text,
    timedelta: timedelta.total_seconds,
    UUID: str,
    Amount: str,
    Whole: str,
    InstantUs: lambda instant_us: time_text(from_us(instant_us)),
}


@cache
def _rendered(
    kind: type[msgspec.Struct],
) -> tuple[tuple[str, str, Callable[[Any], Any] | None], ...]:
    """Return each attribute in JSON, with its name in JSON and its own conversion, if any."""
    fields = ((one, meta_of(one.type)) for one in answer_fields(kind))
    return tuple((one.name, one.encode_name, (meta.extra or {}).get(FORM)) for one, meta in fields)


@cache
def answer_fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    """Return the fields of a struct in JSON, in their order."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - it is one
    return tuple(one for one in info.fields if HIDDEN not in (meta_of(one.type).extra or {}))


def meta_of(kind: inspect.Type) -> inspect.Metadata:
    """Return a field type's annotations, including those of an optional field's non-null part.

    The result's `type` has no annotations; that of an optional field is the type without None.
    """
    extra: dict[str, Any] = {}
    schema: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            extra |= kind.extra or {}
            schema = (kind.extra_json_schema or {}) | schema
            kind = kind.type
        else:
            schema.setdefault("nullable", True)
            kind = next(part for part in kind.types if not isinstance(part, inspect.NoneType))
    return inspect.Metadata(kind, schema, extra)
