"""The API's description of answers, made from their structs."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect
from rest_framework import serializers as s

from evenshare_core.money.rows import Amount, InstantUs, Whole
from tenants.answers import CREDITS, FIELD, STRUCT, answer_fields, meta_of

_Field: TypeAlias = "s.Field[Any, Any, Any, Any]"


@cache
def answer_serializer(answer: type[msgspec.Struct]) -> type[s.Serializer[object]]:
    """Return the serializer that describes an answer; it is not used for output."""
    fields = {one.encode_name: _field(one.type) for one in answer_fields(answer)}
    name = getattr(answer, "COMPONENT", "") or answer.__name__
    return type(name, (s.Serializer,), {"__doc__": answer.__doc__, **fields})


def _field(kind: inspect.Type) -> _Field:
    """Return the serializer field of a struct's field: its description and its type's parts."""
    meta = meta_of(kind)
    schema = meta.extra_json_schema or {}
    more: dict[str, Any] = {}
    if "description" in schema:
        more["help_text"] = schema["description"]
    if schema.get("nullable"):
        more["allow_null"] = True
    extra = meta.extra or {}
    if FIELD in extra:
        field: _Field = extra[FIELD](**more)
        return field
    if STRUCT in extra:
        return answer_serializer(extra[STRUCT])(**more)
    if "enum" in schema:
        return s.ChoiceField(schema["enum"], **more)
    if "pattern" in schema:
        return s.RegexField(schema["pattern"], **more)
    kind_of = meta.type.cls if isinstance(meta.type, inspect.CustomType) else type(meta.type)
    make = _TYPES.get(schema.get("format", schema.get("type", ""))) or _MAKERS.get(kind_of)
    return _composed(meta.type, more) if make is None else make(**more)


def _composed(kind: inspect.Type, more: dict[str, Any]) -> _Field:
    match kind:
        case inspect.EnumType(cls=cls):
            return s.ChoiceField([one.value for one in cls], **more)
        case inspect.StructType(cls=cls):
            return answer_serializer(cls)(**more)
        case inspect.VarTupleType(item_type=inspect.StructType(cls=cls)):
            return answer_serializer(cls)(many=True, **more)
        case inspect.VarTupleType(item_type=item):
            return s.ListField(child=_field(item), **more)
        case inspect.DictType(value_type=value):
            return s.DictField(child=_field(value), **more)
    raise TypeError(f"{kind} is not described")


# Serializer fields by the format of a field's annotation, or by its type if it has no format.
_TYPES: dict[str, Callable[..., _Field]] = {
    "date-time": s.DateTimeField,
    "integer": s.IntegerField,
    "number": s.FloatField,
    "string": s.CharField,
    "uuid": s.UUIDField,
    "object": partial(s.DictField, child=s.JSONField()),
}
_MAKERS: dict[type, Callable[..., _Field]] = {
    inspect.AnyType: s.JSONField,
    inspect.StrType: s.CharField,
    inspect.IntType: s.IntegerField,
    inspect.FloatType: s.FloatField,
    inspect.BoolType: s.BooleanField,
    inspect.DateTimeType: s.DateTimeField,
    inspect.DateType: s.DateField,
    inspect.TimeDeltaType: s.FloatField,
    inspect.UUIDType: s.UUIDField,
    inspect.DecimalType: lambda **more: s.RegexField(CREDITS, **more),
    Amount: lambda **more: s.RegexField(CREDITS, **more),
    Whole: s.CharField,
    InstantUs: s.DateTimeField,
}
