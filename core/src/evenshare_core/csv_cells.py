"""CSV files that spreadsheets open: no cell is a formula, and readers get back what was written.

A spreadsheet takes a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return for a
formula. Such a cell gets an apostrophe in front, unless it is a number. A cell with apostrophes
before one of these gets one more, so that `plain_cell` returns every cell as it was.

All CSV files are written here (tests/architecture/test_csv_writers.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_RISKY = re.compile(r"'*[=+\-@\t\r]")
_MARKED = re.compile(r"'+[=+\-@\t\r]")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def neutral_cell(text: str) -> str:
    """Return a cell as it is written: with an apostrophe in front if it could be a formula."""
    if _RISKY.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def plain_cell(text: str) -> str:
    """Return what a cell said before it was written."""
    return text[1:] if _MARKED.match(text) else text


def write_csv(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, line_end: str = "\n"
) -> str:
    """Return a table as CSV. A cell of None is written as an empty one."""
    lines = (
        ",".join("" if cell is None else _written(str(cell)) for cell in row)
        for row in (columns, *rows)
    )
    return "".join(f"{line}{line_end}" for line in lines)


def _written(text: str) -> str:
    cell = neutral_cell(text)
    # The writer of Python leaves a carriage return bare where lines end in another character.
    if any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell
