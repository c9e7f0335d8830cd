"""Types that mark which integers in a value are ids, and what they identify.

A field that is an id has one of the types below. A field that contains ids (an object, rows of a
policy's memory) has a shape. `evenshare_core.disclosure.renaming` uses these types and shapes to
replace ids. tests/unit/core/test_ids.py checks that each field with integers is marked, or known to
be plain.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, NamedTuple, Union

import msgspec

from evenshare_core.domain.values import Value


class IdKind(StrEnum):
    """The kind of object that an id identifies. Ids of nodes keep their values everywhere."""

    TENANT = "tenants"
    JOB = "jobs"
    LEASE = "leases"
    PROFILE = "profiles"
    NODE = "nodes"


class Row(NamedTuple):
    """A list whose first elements have these shapes; its other elements contain no ids."""

    places: tuple[Shape, ...]


class Each(NamedTuple):
    """A list, or an object with any keys, whose elements all have one shape."""

    shape: Shape


class ById(NamedTuple):
    """An object whose keys are ids as strings."""

    kind: IdKind
    shape: Shape = None


class Fields(NamedTuple):
    """An object with exactly these keys."""

    parts: Mapping[str, Shape]


# `None` if the value contains no ids.
Shape = IdKind | Row | Each | ById | Fields | None

TenantId = Annotated[int, msgspec.Meta(extra={"ids": IdKind.TENANT})]
JobId = Annotated[int, msgspec.Meta(extra={"ids": IdKind.JOB})]
LeaseId = Annotated[int, msgspec.Meta(extra={"ids": IdKind.LEASE})]
ProfileId = Annotated[int, msgspec.Meta(extra={"ids": IdKind.PROFILE})]
NodeId = Annotated[int, msgspec.Meta(extra={"ids": IdKind.NODE})]


def shaped(shape: Shape) -> msgspec.Meta:
    """Return the annotation for values of this shape, whatever type they have."""
    return msgspec.Meta(extra={"ids": shape})


@cache
def shape_of(value_type: Any) -> Shape:
    """Return the shape of a type's values as plain data (`msgspec.to_builtins`): lists of fields.

    Untyped objects (`dict[str, Any]`) contain no ids.
    """
    if typing.get_origin(value_type) is Annotated:
        kind, *metas = typing.get_args(value_type)
        for meta in metas:
            if isinstance(meta, msgspec.Meta) and "ids" in (meta.extra or {}):
                shape: Shape = (meta.extra or {})["ids"]
                return shape
        return shape_of(kind)
    origin, arguments = typing.get_origin(value_type), typing.get_args(value_type)
    if origin in (Union, types.UnionType):
        return shape_of(next(one for one in arguments if one is not type(None)))
    if origin is tuple:
        return _shape_of_tuple(arguments)
    if is_row(value_type):
        return _row(tuple(shape_of(hint) for hint in hints_of(value_type).values()))
    return None


def is_row(value_type: Any) -> bool:
    """Return whether plain data of the type is a list of fields: a value or a named tuple."""
    if not isinstance(value_type, type):
        return False
    return issubclass(value_type, Value) or (
        issubclass(value_type, tuple) and hasattr(value_type, "_fields")
    )


def hints_of(value_type: type) -> dict[str, Any]:
    """Return the types of a value's fields, in field order."""
    hints = typing.get_type_hints(value_type, include_extras=True)
    names: tuple[str, ...] = getattr(
        value_type, "__struct_fields__", getattr(value_type, "_fields", ())
    )
    return {name: hints[name] for name in names}


def _shape_of_tuple(arguments: tuple[Any, ...]) -> Shape:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        shape = shape_of(arguments[0])
        return None if shape is None else Each(shape)
    return _row(tuple(shape_of(one) for one in arguments))


def _row(places: tuple[Shape, ...]) -> Shape:
    return Row(places) if any(place is not None for place in places) else None
