"""Small input tables: CSV with a header line, or JSON.

A JSON file is a list of objects, or an object that has this list under the table's name. No row is
skipped: an error names the row, the column, the reason and the remedy.
"""

import csv
import io
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evenshare_core.csv_cells import plain_cell
from evenshare_core.simulation.trace_fields import UnfitError, seconds, shown
from evenshare_core.units import COUNT_MAX

DECIMAL_MOST = Decimal(10) ** 12
_DECIMAL = re.compile(r"-?[0-9]{1,15}(?:\.([0-9]{1,24}))?", re.ASCII)


class TableError(ValueError):
    """An unusable table; the message gives the place, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: `place` names it in messages, and `cells` has its texts by column.

    A method that returns a cell's value raises TableError if the cell does not have one.
    """

    place: str
    cells: Mapping[str, str]

    def error(self, column: str, reason: str) -> TableError:
        return TableError(f"{self.place}, {column} {reason}")

    def text(self, column: str) -> str:
        """Return a cell; empty if it is missing."""
        return self.cells.get(column, "")

    def name(self, column: str) -> str:
        """Return a required cell."""
        if not self.text(column):
            raise self.error(column, "is empty; name one")
        return self.text(column)

    def whole(self, column: str, *, least: int = 0, most: int = COUNT_MAX) -> int | None:
        """Return a whole number within bounds; None if the cell is empty."""
        text = self.text(column)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise self.error(column, f"is not a whole number: {shown(text)}; use {least} to {most}")
        if not least <= int(text) <= most:
            raise self.error(column, f"is out of bounds: {shown(text)}; use {least} to {most}")
        return int(text)

    def decimal(
        self, column: str, *, least: Decimal, most: Decimal = DECIMAL_MOST, places: int = 12
    ) -> Decimal | None:
        """Return a number with at most `places` decimals; None if the cell is empty."""
        text = self.text(column)
        if not text:
            return None
        match = _DECIMAL.fullmatch(text)
        if not match or len((match[1] or "").rstrip("0")) > places:
            advice = f"use digits and at most {places} decimals"
            raise self.error(column, f"is not such a number: {shown(text)}; {advice}")
        value = Decimal(text)
        if not least <= value <= most:
            advice = f"use {least:f} to {most:f}"
            raise self.error(column, f"is out of bounds: {shown(text)}; {advice}")
        return value

    def seconds_us(self, column: str) -> int | None:
        """Return seconds as microseconds; None if the cell is empty."""
        text = self.text(column)
        try:
            return seconds(text, column) if text else None
        except UnfitError as error:
            raise self.error(column, f"{error.reason}; use seconds, such as 30 or 2.5") from None


def read_table(
    text: str, table: str, *, required: Collection[str], optional: Collection[str] = ()
) -> list[TableRow]:
    """Read rows with all required columns and no unknown column.

    Raises:
        TableError: the file is not such a table, or has no row.
    """
    is_json = text.lstrip()[:1] in ("[", "{")
    rows = _json_rows(text, table) if is_json else _csv_rows(text, required, optional)
    known = (*required, *optional)
    for row in rows:
        _check_columns(row.place, row.cells, required, known)
    if not rows:
        raise TableError(f"has no row of {table}")
    return rows


def _check_columns(
    place: str, columns: Collection[str], required: Collection[str], known: Collection[str]
) -> None:
    missing = [name for name in required if name not in columns]
    unknown = [name for name in columns if name not in known]
    if missing:
        raise TableError(f"{place}: needs {', '.join(missing)}")
    if unknown:
        raise TableError(
            f"{place}: does not know {shown(unknown[0])}; known are {', '.join(known)}"
        )


def _csv_rows(text: str, required: Collection[str], optional: Collection[str]) -> list[TableRow]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[TableRow] = []
    header: list[str] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            place = f"line {reader.line_num}"
            if header is None:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header):
                    raise TableError(f"{place}: a column is repeated; remove one")
                _check_columns(place, header, required, (*required, *optional))
            elif len(cells) != len(header):
                raise TableError(f"{place} has {len(cells)} cells, the header has {len(header)}")
            else:
                stripped = [plain_cell(cell.strip()) for cell in cells]
                rows.append(TableRow(place, dict(zip(header, stripped, strict=True))))
    except csv.Error as error:
        raise TableError(f"line {reader.line_num} is not CSV: {error}") from None
    if header is None:
        raise TableError(f"is empty; the first line names the columns: {', '.join(required)}, ...")
    return rows


def _json_rows(text: str, table: str) -> list[TableRow]:
    try:
        data = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_object
        )
    except (ValueError, RecursionError) as error:
        reason = str(error) if not isinstance(error, RecursionError) else "it is nested too deep"
        raise TableError(f"is no JSON: {reason}") from None
    if isinstance(data, dict):
        data = data.get(table)
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise TableError(f"needs a list of objects, at the top or under {table!r}")
    return [
        TableRow(f"row {index}", {name: _cell(f"row {index}", name, row[name]) for name in row})
        for index, row in enumerate(data, start=1)
    ]


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"an object names {shown(name)} twice; remove one")
    return dict(pairs)


def _cell(place: str, name: str, value: Any) -> str:
    """Return the text of a value; numbers keep the file's digits."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TableError(f"{place}, {shown(name)} is neither text nor a number")
    return value.strip()
