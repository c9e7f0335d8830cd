"""Terminal output: text without control sequences, aligned tables, optional colour.

All text from a server passes `inert`, because other people write names, reasons and logs, and a
terminal executes control sequences.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

_Row = TypeVar("_Row")

_SUSPECT = re.compile(r"[^\x20-\x7e]")
_RETURN = re.compile(r"\r\n?")
_BROKEN = re.compile(r"[^\x20-\x7e\n\t]")
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
# Each state has a sign, a word and a colour, so that no state is shown only by its colour.
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
    """Return one line without control sequences or changes of text direction."""
    return _SUSPECT.sub(_escaped, str(value))


def inert_lines(text: str) -> str:
    """Return lines without control sequences. Tabs stay, and a carriage return also ends a line."""
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
    """Standard output and error, each plain unless it is a terminal with colours."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        environment: Mapping[str, str],
        *,
        writes_json: bool = False,
    ) -> None:
        self._out, self._err = out, err
        self.writes_json = writes_json
        wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        self._colour = {stream: wanted and stream.isatty() for stream in (out, err)}
        self._moves = environment.get("TERM") != "dumb" and err.isatty()
        self._progress = False

    @property
    def is_wide(self) -> bool:
        """Return whether the output is a terminal, whose width is limited."""
        return self._out.isatty()

    def line(self, text: str = "") -> None:
        self.progress("")
        print(text, file=self._out)

    def write(self, text: str) -> None:
        self.progress("")
        self._out.write(text)
        self._out.flush()

    def note(self, text: str) -> None:
        """Print a message to standard error."""
        self.progress("")
        print(text, file=self._err, flush=True)

    def step(self, text: str) -> None:
        """Print a message about the progress of a wait, if a person watches."""
        if self._err.isatty():
            self.note(text)

    def progress(self, text: str) -> None:
        """Replace the progress line, if the output is a terminal."""
        if self._moves and (text or self._progress):
            # Only one line of the terminal's width, because longer text could not be erased.
            self._err.write(f"\r\x1b[K{short(text, shutil.get_terminal_size().columns - 1)}")
            self._err.flush()
        self._progress = bool(text)

    def json(self, value: object) -> None:
        self.progress("")
        # ASCII only: JSON escapes everything that could control the terminal.
        print(json.dumps(value, indent=2).replace("\x7f", "\\u007f"), file=self._out)

    def answered(self, answer: object) -> bool:
        """Print an answer as JSON if that was requested; return whether it was."""
        if self.writes_json:
            self.json(answer)
        return self.writes_json

    def listed(
        self,
        rows: Sequence[_Row],
        nothing: str,
        heads: Sequence[str],
        cells: Callable[[_Row], Sequence[str]],
        right: str = "",
    ) -> int:
        """Print rows as JSON or as a table, or a note if there are none; return the exit code."""
        if self.answered(rows):
            return 0
        if rows:
            self.table(heads, [cells(row) for row in rows], right)
        else:
            self.note(nothing)
        return 0

    def id(self, row: Mapping[str, Any]) -> str:
        """Return a row's id, shortened for a terminal; commands accept both."""
        known = inert(row["id"])
        return known[:8] if self.is_wide else known

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
        """Print a table of inert or styled cells; columns in `right` are right-aligned."""
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
    """Return a cell's width in columns: our colours count 0, East Asian characters 2."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in _STYLED.sub("", cell)
    )


def short(text: str, space: int) -> str:
    """Cut a text that is too long, and mark the cut."""
    return text if len(text) <= space else text[: max(1, space - 1)] + "…"


def named(value: object) -> str:
    """Return the name of a tenant or another value, which is a text or an object with a name."""
    word = value.get("name") if isinstance(value, Mapping) else value
    return inert(word) if word else "-"


def when(value: Any) -> str:
    """Return a UTC time such as `2031-05-04T03:02:01.123456Z` without the fraction of a second."""
    return inert(re.sub(r"\.\d+", "", str(value)).replace("+00:00", "Z")) if value else ""


def standard() -> Terminal:
    for stream in (sys.stdout, sys.stderr):
        # The command must not fail because the terminal's encoding lacks a character.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return Terminal(sys.stdout, sys.stderr, os.environ)


def _shows(stream: TextIO, sign: str) -> bool:
    try:
        sign.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
