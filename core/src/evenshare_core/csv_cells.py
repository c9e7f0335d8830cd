"""CSV files for spreadsheets: no cell is a formula, and readers get back the original text.

A spreadsheet interprets a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return as a
formula. Such a cell gets a leading apostrophe, unless it is a number. A cell that already has
apostrophes before one of these characters gets one more, so `plain_cell` can restore every cell.
All CSV files are written here (tests/architecture/test_csv_writers.py).
"""

import re
from collections.abc import Iterable, Sequence

_RISKY = re.compile(r"'*[=+\-@\t\r]")
_MARKED = re.compile(r"'+[=+\-@\t\r]")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def neutral_cell(text: str) -> str:
    """Return a cell for a file, with a leading apostrophe if it could be a formula."""
    if _RISKY.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def plain_cell(text: str) -> str:
    """Return the original text of a cell."""
    return text[1:] if _MARKED.match(text) else text


def write_csv(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, line_end: str = "\n"
) -> str:
    """Return a table as CSV. A cell of `None` is empty."""
    lines = (
        ",".join("" if cell is None else _written(str(cell)) for cell in row)
        for row in (columns, *rows)
    )
    return "".join(f"{line}{line_end}" for line in lines)


def _written(text: str) -> str:
    cell = neutral_cell(text)
    # Python's csv writer quotes a carriage return only if lines end in one.
    if any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell
