"""What people see: inert text, aligned tables, colour only where it is wanted.

Everything that comes from a server passes `inert`: names, reasons and logs are written by
other people, and a terminal obeys what it is sent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

_SUSPECT = re.compile(r"[^\x20-\x7e]")
_RETURN = re.compile(r"\r\n?")
_BROKEN = re.compile(r"[^\x20-\x7e\n\t]")
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
# A sign, a word and a colour: state never shows by colour alone.
STATES = {
    "pending": ("○", "yellow"),
    "starting": ("◌", "blue"),
    "running": ("●", "blue"),
    "stopping": ("◐", "blue"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("-", "dim"),
}


def inert(value: object) -> str:
    """One line without anything that a terminal would act on, or that turns its direction."""
    return _SUSPECT.sub(_escaped, str(value))


def inert_lines(text: str) -> str:
    """Lines and tabs stay, a carriage return ends a line too; all else as `inert`."""
    return _BROKEN.sub(_escaped, _RETURN.sub("\n", text))


def _escaped(match: re.Match[str]) -> str:
    sign = match[0]
    if sign.isprintable():
        return sign
    number = ord(sign)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class Terminal:
    """Standard output and error, each plain unless it is a terminal that shows colours."""

    def __init__(self, out: TextIO, err: TextIO, environment: Mapping[str, str]) -> None:
        self._out, self._err = out, err
        wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        self._colour = {stream: wanted and stream.isatty() for stream in (out, err)}
        self._moves = environment.get("TERM") != "dumb" and err.isatty()
        self._progress = False

    @property
    def is_wide(self) -> bool:
        """Whether somebody looks at it, in a window of some width."""
        return self._out.isatty()

    def line(self, text: str = "") -> None:
        self.progress("")
        print(text, file=self._out)

    def write(self, text: str) -> None:
        self.progress("")
        self._out.write(text)
        self._out.flush()

    def note(self, text: str) -> None:
        """For people, not for pipes."""
        self.progress("")
        print(text, file=self._err, flush=True)

    def progress(self, text: str) -> None:
        """How far it is, in place of what stood there; nothing where nobody watches."""
        if self._moves and (text or self._progress):
            # One line of the window: a longer one could not be taken back.
            self._err.write(f"\r\x1b[K{short(text, shutil.get_terminal_size().columns - 1)}")
            self._err.flush()
        self._progress = bool(text)

    def json(self, value: object) -> None:
        self.progress("")
        # ASCII only: what is not escaped by JSON cannot be an order to the terminal.
        print(json.dumps(value, indent=2).replace("\x7f", "\\u007f"), file=self._out)

    def style(self, text: str, *names: str, err: bool = False) -> str:
        if not self._colour[self._err if err else self._out]:
            return text
        return f"\x1b[{';'.join(STYLES[name] for name in names)}m{text}\x1b[0m"

    def state(self, state: object) -> str:
        word = inert(state)
        sign, colour = STATES.get(word, ("?", "dim"))
        if not self.is_wide:
            return word
        if not _shows(self._out, sign):
            return self.style(word, colour)
        return self.style(f"{sign} {word}", colour)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> None:
        """Cells are inert or styled already; columns named in `right` end flush."""
        widths = [max(width(cell) for cell in column) for column in zip(heads, *rows)]
        self.line(self._row([self.style(head, "dim") for head in heads], heads, widths, right))
        for row in rows:
            self.line(self._row(row, heads, widths, right))

    def _row(
        self, cells: Sequence[str], heads: Sequence[str], widths: Sequence[int], right: str
    ) -> str:
        ends = right.split()
        return "  ".join(
            " " * (space - width(cell)) + cell
            if head in ends
            else cell + " " * (space - width(cell))
            for cell, head, space in zip(cells, heads, widths)
        ).rstrip()

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        space = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.line(f"{self.style(name.ljust(space), 'dim')}  {value}")

    def columns(self) -> int:
        return shutil.get_terminal_size().columns if self.is_wide else 10_000


_STYLED = re.compile(r"\x1b\[[0-9;]*m")


def width(cell: str) -> int:
    """Columns that a cell takes: our own colours none, East Asian signs two."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in _STYLED.sub("", cell)
    )


def short(text: str, space: int) -> str:
    """Cut what is too long for its place, and show that it was."""
    return text if len(text) <= space else text[: max(1, space - 1)] + "…"


def named(value: object) -> str:
    """A tenant, or whatever else comes as a word or as an object with a name."""
    word = value.get("name") if isinstance(value, Mapping) else value
    return inert(word) if word else "-"


def when(value: Any) -> str:
    """`2031-05-04T03:02:01.123456Z` without its fraction; times are UTC."""
    return inert(re.sub(r"\.\d+", "", str(value)).replace("+00:00", "Z")) if value else ""


def standard() -> Terminal:
    for stream in (sys.stdout, sys.stderr):
        # A sign that the terminal's encoding lacks must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return Terminal(sys.stdout, sys.stderr, os.environ)


def _shows(stream: TextIO, sign: str) -> bool:
    try:
        sign.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
