"""What every policy is: a name, a version, options, and one pure function."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot

OptionsT = TypeVar("OptionsT", bound="Options")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of a policy's options: documented fields with bounds, all with defaults.

    `fairness_window_us` is asked of every policy by `decide_round`; 0 forgets nothing.
    """

    @property
    def fairness_window_us(self) -> int:
        """Length of the fairness window of tenants; 0: all history counts."""
        return 0


class Policy(Protocol):
    """A scheduling policy: pure, no clock, no I/O, no state but `snapshot.memory`.

    `version` changes whenever the same snapshot may give another decision, or the memory another
    shape; the engine then drops the memory.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def options_type(self) -> type[Options]: ...

    def decide(self, snapshot: Snapshot) -> Decision:
        """Fill `grants`, `renewals`, `ends`, `skips` and `memory`; `decide_round` adds the rest.

        `snapshot.service` is as of `snapshot.at_us`, and `snapshot.changes` is empty.
        """
        ...


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
        problem, _, path = str(error).partition(" - at `$.")
        raise OptionError(f"{path.rstrip('`') or 'options'}: {problem}") from error
