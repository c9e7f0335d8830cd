"""The API's description of requests, made from their structs."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import inspect
from rest_framework import serializers as s

from tenants.input.readers import CREDITS
from tenants.input.requests import Request, RequestField, Shape, request_fields

_Field: TypeAlias = "s.Field[Any, Any, Any, Any]"


def request_serializer(request: type[Request], **special: _Field) -> type[s.Serializer[object]]:
    """Return the serializer that describes a request; it is not used for input.

    `special` describes fields of uncommon shapes.
    """
    fields = request_fields(request).values()
    absent = request.NULL_IS_ABSENT
    shown: dict[str, Any] = {
        one.name: special.get(one.name) or serializer_field(one, null_is_absent=absent)
        for one in fields
    }
    return type(request.__name__, (s.Serializer,), {"__doc__": request.__doc__, **shown})


def answer_fields(fields: Iterable[RequestField]) -> dict[str, _Field]:
    """Return the description of fields that a response repeats from the request."""
    return {one.name: serializer_field(one, is_answer=True) for one in fields}


def serializer_field(
    field: RequestField, *, is_answer: bool = False, null_is_absent: bool = True
) -> _Field:
    """Return the serializer field of a field: its type, bounds and description."""
    more: dict[str, Any] = {"help_text": field.description}
    if not is_answer:
        optional = not field.is_required
        more["required"] = field.is_required
        more["allow_null"] = field.is_nullable or (optional and null_is_absent)
    elif field.is_nullable:
        more["allow_null"] = True
    if field.input.choices:
        return s.ChoiceField(list(field.input.choices), **more)
    make = _MAKERS.get(field.shape)
    return s.JSONField(**more) if make is None else make(field, more)


def _text(field: RequestField, more: dict[str, Any]) -> _Field:
    if field.pattern:
        return s.RegexField(field.pattern, **more)
    return s.CharField(max_length=field.most, allow_blank=not field.is_required, **more)


def _texts(field: RequestField, more: dict[str, Any]) -> _Field:
    item = s.CharField(max_length=_longest(field))
    return s.ListField(child=item, min_length=field.least, max_length=field.most, **more)


def _longest(field: RequestField) -> int | None:
    return field.item.max_length if isinstance(field.item, inspect.StrType) else None


_MAKERS: dict[Shape, Callable[[RequestField, dict[str, Any]], _Field]] = {
    Shape.TEXT: _text,
    Shape.TEXTS: _texts,
    Shape.WHOLE: lambda field, more: s.IntegerField(
        min_value=field.least, max_value=field.most, **more
    ),
    Shape.AMOUNT: lambda _, more: s.RegexField(f"^{CREDITS.pattern}$", **more),
    Shape.INSTANT: lambda _, more: s.DateTimeField(**more),
    Shape.AMOUNTS: lambda _, more: s.DictField(child=s.RegexField(f"^{CREDITS.pattern}$"), **more),
    Shape.LISTS: lambda _, more: s.DictField(child=s.ListField(child=s.CharField()), **more),
    Shape.ROWS: lambda field, more: s.ListField(
        child=s.DictField(child=s.CharField(allow_blank=True)), max_length=field.most, **more
    ),
    Shape.PAIRS: lambda _, more: s.DictField(child=s.CharField(allow_blank=True), **more),
}
