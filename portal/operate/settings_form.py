"""The form of a pool's settings: lengths, visibility, and a policy's options by their schema."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Type, type_info

from evenshare_core.policies import registry
from evenshare_core.policies.policy import OptionError
from portal.site.forms import Field, text, whole
from scheduling.models import Pool
from scheduling.services.operate import LENGTHS

OPTION = "option-"
LABELS = {
    "round_s": ("Round every", "s of the wall", "How often a decision is made."),
    "lease_s": ("Lease length", "s of the pool", "New terms; those that run keep theirs."),
    "grace_s": ("Grace", "s of the pool", "For a checkpoint, before a process is killed."),
    "outage_grace_s": (
        "Outage grace",
        "s of the pool",
        "How long jobs run on past their lease while no round is decided.",
    ),
}
_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z`])")


def setting_fields(pool: Pool, posted: Mapping[str, str], errors: Mapping[str, str]) -> list[Field]:
    """Lengths and visibility."""
    fields = [
        Field(
            name,
            LABELS[name][0],
            posted.get(name, str(getattr(pool, name))),
            "number",
            f"{LABELS[name][2]} {least:,} to {most:,}.",
            LABELS[name][1],
            errors.get(name, ""),
        )
        for name, (least, most) in LENGTHS.items()
    ]
    choices = tuple((choice.value, str(choice.label)) for choice in Pool.Visibility)
    fields.append(
        Field(
            "visibility",
            "Tenants see of others",
            posted.get("visibility", pool.visibility),
            "select",
            "In rounds and on the node map.",
            error=errors.get("visibility", ""),
            choices=choices,
        )
    )
    return fields


def lengths_typed(posted: Mapping[str, str]) -> dict[str, int | None]:
    """The lengths that the form holds."""
    return {name: whole(posted.get(name)) for name in LENGTHS}


def option_fields(
    policy: str, stored: Mapping[str, Any], posted: Mapping[str, str], errors: Mapping[str, str]
) -> list[Field]:
    """One field per option of a policy, with its words and bounds.

    Raises:
        UnknownPolicyError: there is no such policy.
    """
    kind = registry.policy(policy).options_type
    try:
        present = msgspec.to_builtins(registry.options(policy, dict(stored)))
    except OptionError:
        present = msgspec.to_builtins(kind())
    words = dict(option_words(kind))
    return [
        _field(name, type_, present[name], words.get(name, ""), posted=posted, errors=errors)
        for name, type_ in option_types(kind).items()
    ]


def option_types(kind: type[msgspec.Struct]) -> dict[str, Type]:
    """The types of a policy's options, with their bounds."""
    info = type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101 - narrows; options are structs
    return {field.encode_name: field.type for field in info.fields}


def option_words(kind: type) -> Iterator[tuple[str, str]]:
    """What the docstring says of each option: its own sentence, or the clause that names it."""
    told = " ".join((inspect.getdoc(kind) or "").split())
    for sentence in _SENTENCE.split(told):
        for name in re.findall(r"`(\w+)`", sentence):
            own = re.match(rf"`{name}`: (.*)", sentence)
            yield name, (own[1] if own else _clause(sentence, name)).replace("`", "")


def _clause(sentence: str, name: str) -> str:
    """ "a `x` for y, `z` per w" -> "for y" of x."""
    clauses = re.split(r"(?<=[,:]) ", sentence)
    found = next(clause for clause in clauses if f"`{name}`" in clause)
    return found.removeprefix(f"`{name}`").strip(" ,:.") + "."


def _field(
    name: str,
    kind: Type,
    present: object,
    words: str,
    *,
    posted: Mapping[str, str],
    errors: Mapping[str, str],
) -> Field:
    key = OPTION + name
    shape, bounds, shown = "text", "", str(present)
    choices: tuple[tuple[str, str], ...] = ()
    match kind:
        case BoolType():
            # Two choices rather than a box: a box that is not ticked is not sent at all.
            shape, shown = "select", "yes" if present else "no"
            choices = (("yes", "yes"), ("no", "no"))
        case LiteralType():
            shape = "select"
            choices = tuple((str(value), str(value)) for value in kind.values)
        case IntType() | FloatType():
            shape = "number"
            if kind.ge is not None and kind.le is not None:
                bounds = f" Write {kind.ge:,} to {kind.le:,}."
    return Field(
        key,
        name.removesuffix("_s").replace("_", " ").capitalize(),
        posted.get(key, shown),
        shape,
        words[:1].upper() + words[1:] + bounds,
        "s" if name.endswith("_s") else "",
        error=errors.get(f"options.{name}", ""),
        choices=choices,
    )


def options_typed(policy: str, posted: Mapping[str, str]) -> dict[str, Any]:
    """The options that the form holds, by their types; what cannot be read stays text.

    Raises:
        UnknownPolicyError: there is no such policy.
    """
    types = option_types(registry.policy(policy).options_type)
    typed: dict[str, Any] = {}
    for name, kind in types.items():
        if OPTION + name in posted:
            typed[name] = _typed(kind, text(posted, OPTION + name))
    return typed


def _typed(kind: Type, value: str) -> object:
    match kind:
        case BoolType():
            return {"yes": True, "no": False}.get(value, value)
        case IntType():
            number = whole(value)
            return value if number is None else number
        case FloatType():
            try:
                return float(value)
            except ValueError:
                return value
    return value
