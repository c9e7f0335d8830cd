"""The interface of a command: its options, and a function that runs it on text streams.

`evenshare-core` and `manage.py` offer the same commands; each has its own parser, streams and error
handling.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Options = Mapping[str, Any]


class Stream(Protocol):
    """A text stream for a command's output."""

    def write(self, text: str, /) -> object:
        """Write text unchanged."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""


class CliError(Exception):
    """The command failed; the message is for its user.

    `code`: the exit status.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class CoreCommand:
    """A command by name.

    `run(options, out, err)` gets the parsed options by name. It writes the result to `out`, and
    warnings and progress to `err`. It raises `CliError`.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Options, Stream, Stream], None]


def say(stream: Stream, text: str) -> None:
    stream.write(f"{text}\n")
