"""The named form of values: the same records, encoded as objects with field names.

It is derived from the value types, so that new fields appear automatically. Nested named tuples
(marks of a window, steps of a deadline) and placements stay arrays, because there are many of them.
"""

import types
import typing
from functools import cache
from typing import Annotated, Any, Union

import msgspec

from evenshare_core.disclosure.renaming import NUMBERED
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.ids import IdKind, hints_of, shape_of
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import Value

# The types of ids in the named form.
_NUMBERS = {
    kind: Annotated[int, msgspec.Meta(ge=0, description=f"Place in names.{kind}, from 1; 0: none.")]
    for kind in NUMBERED
}


@cache
def form_of(value_type: type[Value]) -> type[msgspec.Struct]:
    """Return the named form of a value type; `msgspec.convert` converts between the two.

    All fields are required, except those added after bytes of the type had been stored.
    """
    hints = hints_of(value_type)
    fields: list[Any] = []
    for field in msgspec.structs.fields(value_type):
        hint = _form(hints[field.name])
        if field.name in value_type.newest:
            fields.append((field.name, hint, field.default))
        else:
            fields.append((field.name, hint))
    return msgspec.defstruct(
        value_type.__name__,
        fields,
        module=__name__,
        namespace={"__doc__": value_type.__doc__},
        frozen=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def _form(hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind = shape_of(hint)
        return _NUMBERS.get(kind, int) if isinstance(kind, IdKind) else _form(arguments[0])
    if origin in (Union, types.UnionType):
        return Union[tuple(_form(one) for one in arguments)]  # noqa: UP007 - of a list
    if origin is tuple:
        return tuple.__class_getitem__(
            tuple(one if one is Ellipsis else _form(one) for one in arguments)
        )
    if isinstance(hint, type) and issubclass(hint, Value):
        return form_of(hint)
    return hint


SnapshotForm = form_of(Snapshot)
DecisionForm = form_of(Decision)
