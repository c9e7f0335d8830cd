"""What a command is: its options, and a function that runs it on text streams.

`evenshare-core` and `manage.py` offer the same commands; each brings its own parser, streams and
way to fail.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Options = Mapping[str, Any]


class Stream(Protocol):
    """What a command writes to."""

    def write(self, text: str, /) -> object:
        """Write text as it is."""

    def isatty(self) -> bool:
        """Whether somebody watches."""


class CliError(Exception):
    """The command cannot do what was asked; the message is for the person who asked.

    `code`: the exit status.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class CoreCommand:
    """A command by name.

    `run(options, out, err)` gets the parsed options by name; it writes its answer to `out`, and
    remarks and progress to `err`. It raises `CliError`.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Options, Stream, Stream], None]


def say(stream: Stream, text: str) -> None:
    stream.write(f"{text}\n")
