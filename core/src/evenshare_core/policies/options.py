"""A policy's options: fields with bounds, defaults, and the words that explain them.

The words stand in the field's own metadata (`msgspec.Meta(description=...)`); forms, the API's
description, `--help` and the documents' tables are made of `describe_options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Metadata, Type, type_info

# The key of a unit in a field's `extra_json_schema`; published with the API's description.
UNIT = "x-unit"
# Of the option `spread`, which most policies have.
SPREAD_TEXT = (
    "A job that fits on one node starts on several nodes if none has room. It starts sooner but"
    " runs slower, because its GPUs exchange data between nodes."
)
OptionsT = TypeVar("OptionsT", bound="Options")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of a policy's options: described fields with bounds, all with defaults.

    The properties are asked of every policy by `decide_round` and the certificate.
    """

    @property
    def fairness_window_us(self) -> int:
        """Length of the fairness window of tenants; 0: all history counts."""
        return 0

    @property
    def min_runtime_us(self) -> int:
        """How long a new lease is protected: before that, no rule ends it."""
        return 0

    @property
    def interval_us(self) -> int:
        """How far apart the rounds are that decide everything; 0: every one does."""
        return 0


class OptionError(ValueError):
    """A policy's options are not valid; the message names the field."""


def parse_options(kind: type[OptionsT], raw: dict[str, Any]) -> OptionsT:
    """Read options from plain data.

    Raises:
        OptionError: an unknown field, a wrong type or a value out of bounds; it is named.
    """
    known = set(kind.__struct_fields__)
    for field in sorted(set(raw) - known):
        raise OptionError(f"{field}: unknown option; known are {', '.join(sorted(known))}")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        _, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        advice = {option.name: option.advice for option in describe_options(kind)}
        raise OptionError(f"{name or 'options'}: {advice.get(name, str(error))}") from error


# ---- described ----


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a policy as it is shown to people.

    `kind` is what may be written; `choices` are those of a "choice". `least` and `most` bound a
    number, None where nothing does. `unit` is what the field's metadata say (`UNIT`), "s" where
    its name ends in `_s`, else empty.
    """

    name: str
    description: str
    default: Any
    kind: Literal["switch", "choice", "integer", "number"]
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    unit: str = ""

    @property
    def label(self) -> str:
        """Its name for people, without the unit."""
        return self.name.removesuffix("_s").replace("_", " ").capitalize()

    @property
    def advice(self) -> str:
        """What may be written, as a sentence."""
        match self.kind:
            case "switch":
                return "Write true or false."
            case "choice":
                return f"Write one of {', '.join(self.choices)}."
        noun = "a whole number" if self.kind == "integer" else "a number"
        if self.least is None or self.most is None:
            return f"Write {noun}."
        return f"Write {noun} from {self.least:,} to {self.most:,}."


def describe_options(kind: type[Options]) -> tuple[Option, ...]:
    """Return the options of a policy, in the order of their declaration.

    Raises:
        TypeError: a field has no description, no default, or a type that no form can show.
    """
    info = type_info(kind)
    if not isinstance(info, msgspec.inspect.StructType):
        raise TypeError(f"{kind.__name__} is not a struct")
    return tuple(_option(kind, field) for field in info.fields)


def _option(kind: type[Options], field: msgspec.inspect.Field) -> Option:
    name, type_, description = field.encode_name, field.type, ""
    unit = "s" if name.endswith("_s") else ""
    if isinstance(type_, Metadata):
        schema = type_.extra_json_schema or {}
        description, unit = schema.get("description", ""), schema.get(UNIT, unit)
        type_ = type_.type
    if not description or field.required:
        raise TypeError(f"{kind.__name__}.{name} needs a description and a default")
    shape, choices, least, most = _shape(f"{kind.__name__}.{name}", type_)
    return Option(name, description, field.default, shape, choices, least, most, unit)


def _shape(
    where: str, type_: Type
) -> tuple[
    Literal["switch", "choice", "integer", "number"],
    tuple[str, ...],
    float | None,
    float | None,
]:
    match type_:
        case BoolType():
            return "switch", (), None, None
        case LiteralType():
            return "choice", tuple(str(value) for value in type_.values), None, None
        case IntType():
            return "integer", (), type_.ge, type_.le
        case FloatType():
            return "number", (), type_.ge, type_.le
    raise TypeError(f"{where}: no form can show a {type(type_).__name__}")
