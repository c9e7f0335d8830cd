"""A policy's options: fields with bounds, defaults and descriptions.

Descriptions are in the field's metadata (`msgspec.Meta(description=...)`). Forms, the API's schema,
`--help` and the tables of the documents are generated from `describe_options`.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Metadata, Type, type_info

from evenshare_core.domain.reason_texts import NO_OPTION

# The key of a unit in a field's `extra_json_schema`; the API's schema contains it.
UNIT = "x-unit"
# Description of the option `spread`, which most policies have.
SPREAD_TEXT = (
    "A job that fits on one node starts on several nodes if none has room. It starts sooner but"
    " runs slower, because its GPUs exchange data between nodes."
)
WholeNodes = Annotated[
    bool,
    msgspec.Meta(
        description="A job larger than a node takes whole nodes, plus one more node for the"
        " remainder."
    ),
]
OptionsT = TypeVar("OptionsT", bound="Options")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of a policy's options: fields with a description, bounds and a default.

    `decide_round` and the certificate read these properties of every policy.
    """

    @property
    def fairness_window_us(self) -> int:
        """Length of the tenants' fairness window; with 0, all history counts."""
        return 0

    @property
    def min_runtime_us(self) -> int:
        """The time after the start of a lease during which no rule ends it."""
        return 0

    @property
    def interval_us(self) -> int:
        """The time between rounds that decide everything; with 0, every round does."""
        return 0

    @property
    def late_credit_micro(self) -> int:
        """The credit per GPU-hour of a late promised start, in micro-credits; with 0, none."""
        return 0


class OptionError(ValueError):
    """An error in a policy's options. The message names the field."""


def parse_options(kind: type[OptionsT], raw: dict[str, Any]) -> OptionsT:
    """Read options from plain data.

    Raises:
        OptionError: a field is unknown, of a wrong type or out of bounds; the message names it.
    """
    known = set(kind.__struct_fields__)
    for field in sorted(set(raw) - known):
        raise OptionError(f"{field}: {NO_OPTION.format(known=', '.join(sorted(known)))}")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        _, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        advice = {option.name: option.advice for option in describe_options(kind)}
        raise OptionError(f"{name or 'options'}: {advice.get(name, str(error))}") from error


# ---- descriptions for forms and documents ----


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a policy, for display.

    `kind`: the type of value; `choices`: the values of a "choice". `least`, `most`: bounds of a
    number, None if unbounded. `unit`: from the field's metadata (`UNIT`), "s" if the name ends in
    `_s`, or else empty.
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
        """Return the display name without the unit."""
        return self.name.removesuffix("_s").replace("_", " ").capitalize()

    @property
    def advice(self) -> str:
        """Return a sentence that states the valid values."""
        match self.kind:
            case "switch":
                return "Use true or false."
            case "choice":
                return f"Choose one of {', '.join(self.choices)}."
        noun = "a whole number" if self.kind == "integer" else "a number"
        if self.least is None or self.most is None:
            return f"Enter {noun}."
        return f"Enter {noun} from {self.least:,} to {self.most:,}."


def describe_options(kind: type[Options]) -> tuple[Option, ...]:
    """Return the options of a policy, in the order of their declaration.

    Raises:
        TypeError: a field has no description, no default, or a type without a form field.
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
    raise TypeError(f"{where}: forms do not support a {type(type_).__name__}")
