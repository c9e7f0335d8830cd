"""The rows of the table of commands, and the types of their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Argument:
    """The arguments of `ArgumentParser.add_argument`."""

    names: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class CommandRow:
    """A command such as `job show`: a noun, and usually a verb."""

    name: str
    run: Callable[..., int]
    about: str
    options: tuple[Argument, ...] = ()
    takes_command: bool = False

    @property
    def noun(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def verb(self) -> str:
        """Return the verb; empty if the noun is the whole name."""
        return self.name.partition(" ")[2]


def option(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def whole(text: str) -> int:
    return 0 if text == "0" else positive(text)


def positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not int(text[:10]) >= 1 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
