"""Traces of real clusters, line by line: what a file says, and where it says nothing usable.

A bad line never costs a good one: lines are read one at a time, bounded in length, and each is
parsed on its own, so an open quotation mark or a torn byte ends with its line. Nothing but the
present line is in memory.

| format | columns that are read | tenant | submission |
|---|---|---|---|
| philly | job_id, tenant, submit_time_s, duration_s, gpus | tenant | seconds |
| helios | job_id, vc, gpu_num, cpu_num, state, submit_time, duration | vc | instant |
| chronus | set, job_id, tenant, submit_time_min, duration_min, gpus, model, job_type, | tenant | |
| | deadline_min_list and value_list, both with `-` between; after the submission | | minutes |
| own | name (or trace_id), tenant, gpus, submit_s, duration_s, and `OPTIONAL` | tenant | seconds |
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from evenshare_core.csv_cells import plain_cell
from evenshare_core.simulation.trace_fields import (
    NAME_MAX,
    OPTIONAL_READERS,
    UnfitError,
    seconds,
    submission,
    whole,
)
from evenshare_core.units import SECOND_US

GZIP_MAGIC = b"\x1f\x8b"
LINE_MAX = 64 * 1024
GPUS_MAX = 100_000

REQUIRED = ("tenant", "gpus", "submit", "duration")
OPTIONAL = (
    *("name", "cpus", "memory_mb", "weight", "gpu_types", "max_price", "estimate_s"),
    *("exit_code", "model", "deadline_s", "values", "cancel_s", "cold_s", "checkpoint_s"),
)
FIELDS = (*REQUIRED, *OPTIONAL, "state", "job_class", "set")

# Format -> its column -> our field.
FORMATS: dict[str, dict[str, str]] = {
    "philly": {
        "job_id": "name",
        "tenant": "tenant",
        "submit_time_s": "submit",
        "duration_s": "duration",
        "gpus": "gpus",
    },
    "helios": {
        "job_id": "name",
        "vc": "tenant",
        "gpu_num": "gpus",
        "cpu_num": "cpus",
        "state": "state",
        "submit_time": "submit",
        "duration": "duration",
    },
    "chronus": {
        "job_id": "name",
        "tenant": "tenant",
        "submit_time_min": "submit",
        "duration_min": "duration",
        "gpus": "gpus",
        "model": "model",
        "job_type": "job_class",
        "deadline_min_list": "deadline_s",
        "value_list": "values",
        "set": "set",
    },
    "own": {
        "tenant": "tenant",
        "gpus": "gpus",
        "submit_s": "submit",
        "duration_s": "duration",
        "trace_id": "name",
        **{name: name for name in OPTIONAL},
    },
}
# A header that has all of these is of that format.
_SIGNS: dict[str, frozenset[str]] = {
    "philly": frozenset({"tenant", "submit_time_s", "duration_s", "gpus"}),
    "helios": frozenset({"vc", "gpu_num", "submit_time", "duration"}),
    "chronus": frozenset({"tenant", "submit_time_min", "duration_min", "deadline_min_list"}),
    "own": frozenset({"tenant", "gpus", "submit_s", "duration_s"}),
}
# So many seconds is one unit of its times.
_UNITS = {"chronus": 60}
# Known columns that are not read, so that nobody is asked to map them.
_KNOWN = frozenset({"submit_ts", "user", "node_num", "start_time", "end_time", "queue"})
# Their names are bare numbers.
_NUMBERED = frozenset({"philly", "helios", "chronus"})
# A job without GPUs is sound there, and left out.
_ON_CPUS = frozenset({"helios", "chronus"})
_NO_DEADLINE = frozenset({"best", "best_effort"})
_FAILED = frozenset({"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"})


class HeaderError(Exception):
    """The file's first line does not say which columns are what; nothing was read."""


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One job of a trace. `submit_us` counts from wherever the file's own clock begins.

    `extra` holds the optional fields that the file gives, by the names of `OPTIONAL`;
    `deadline_s` (a list, after the submission), `cancel_s`, `cold_s` and `checkpoint_s` in
    microseconds.
    """

    line: int
    name: str
    tenant: str
    gpus: int
    submit_us: int
    duration_us: int
    extra: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no job: where, in which field (empty: the line as a whole), and why."""

    line: int
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that is sound but asks for no GPU, as Helios' jobs on CPUs do."""

    line: int


Read = TraceLine | BadLine | LeftOut


@dataclass(frozen=True, slots=True)
class Columns:
    """Which cell of a line is which field; `format` says whose words the header speaks."""

    format: str
    width: int
    at: dict[str, int]

    @property
    def unread(self) -> int:
        """How many columns are not read."""
        return self.width - len(self.at)


def trace_lines(
    file: IO[bytes],
    *,
    form: str = "auto",
    mapping: Mapping[str, str] | None = None,
    chosen: str = "",
) -> tuple[Columns, Iterator[Read]]:
    """Return a file's columns, and an iterator over its lines, plain or gzip.

    `form` is one of `FORMATS` or `auto`; `mapping` is column -> field and wins over the format.
    `chosen` names the one set to read of a file that holds several.

    Raises:
        HeaderError: a required field has no column, the mapping names none, a set is not chosen
            where the file has sets, or is where it has none.
    """
    numbered = _numbered(_unpacked(file))
    first = next(numbered, None)
    if first is None or isinstance(first, BadLine):
        raise HeaderError(f"the first line cannot be read: {first.reason if first else 'empty'}")
    header = _cells(first[1].removeprefix("\ufeff"))
    columns = columns_of([cell.strip() for cell in header], form=form, mapping=mapping or {})
    if ("set" in columns.at) != bool(chosen):
        raise HeaderError(
            "the file has no column for sets: leave --set out"
            if chosen
            else "the file holds several sets of jobs: choose one with --set"
        )
    return columns, _rows(numbered, columns, chosen)


def columns_of(header: Sequence[str], *, form: str, mapping: Mapping[str, str]) -> Columns:
    """Return which column of a header is which field.

    Raises:
        HeaderError: as `trace_lines`.
    """
    doubled = {name for name in header if header.count(name) > 1}
    if doubled:
        raise HeaderError(f"columns that are there twice: {', '.join(sorted(doubled))}")
    _check_mapping(header, mapping)
    known = form if form != "auto" else _format_of(header)
    by_column = {**FORMATS.get(known, FORMATS["own"])}
    taken = set(mapping.values())
    by_column = {column: name for column, name in by_column.items() if name not in taken}
    by_column |= mapping
    at: dict[str, int] = {}
    for place, column in enumerate(header):
        name = by_column.get(column)
        if name is not None:
            at.setdefault(name, place)
    missing = [name for name in REQUIRED if name not in at]
    if missing:
        unknown = [c for c in header if c not in by_column and c not in _KNOWN]
        raise HeaderError(
            f"no column for {', '.join(missing)}; name it with --map COLUMN=FIELD"
            f" (columns without a meaning: {', '.join(unknown) or 'none'})"
        )
    return Columns(known if known in FORMATS else "mapped", len(header), at)


def _check_mapping(header: Sequence[str], mapping: Mapping[str, str]) -> None:
    for column, name in mapping.items():
        if column not in header:
            raise HeaderError(f"the file has no column {column!r} to map")
        if name not in FIELDS:
            raise HeaderError(f"{name!r} is no field; there are {', '.join(FIELDS)}")
    fields = list(mapping.values())
    doubled = sorted({name for name in fields if fields.count(name) > 1})
    if doubled:
        raise HeaderError(f"two columns are mapped to {', '.join(doubled)}")


def _format_of(header: Sequence[str]) -> str:
    return next((name for name, signs in _SIGNS.items() if signs <= set(header)), "")


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """The file, through gzip where its first bytes say so."""
    magic = file.read(2)
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if magic == GZIP_MAGIC else file  # type: ignore[return-value]  # it reads as IO[bytes] does


def _numbered(file: IO[bytes]) -> Iterator[tuple[int, str] | BadLine]:
    """Lines with their numbers from 1; one that is damaged or too long as a bad line."""
    number = 0
    while True:
        number += 1
        try:
            raw = file.readline(LINE_MAX + 1)
            if not raw:
                return
            if len(raw) > LINE_MAX:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LINE_MAX)
                yield BadLine(number, "", f"is longer than {LINE_MAX:,} bytes")
                continue
        except (EOFError, OSError, zlib.error) as error:
            yield BadLine(number, "", f"the file is damaged from here on ({error})")
            return
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            yield BadLine(number, "", "is not UTF-8")
            continue
        if "\x00" in text:
            yield BadLine(number, "", "has a NUL character")
        elif text.strip():
            yield number, text.rstrip("\r\n")


def _rows(
    numbered: Iterator[tuple[int, str] | BadLine], columns: Columns, chosen: str
) -> Iterator[Read]:
    for item in numbered:
        if isinstance(item, BadLine):
            yield item
            continue
        number, text = item
        try:
            cells = _cells(text)
            if chosen and _of_another_set(cells, columns, chosen):
                continue
            yield _row(number, cells, columns)
        except csv.Error as error:
            yield BadLine(number, "", f"is no CSV ({error})")
        except UnfitError as error:
            yield BadLine(number, error.name, error.reason)


def _of_another_set(cells: list[str], columns: Columns, chosen: str) -> bool:
    place = columns.at["set"]
    return len(cells) == columns.width and cells[place].strip() != chosen


def _cells(text: str) -> list[str]:
    """The cells of one line, without a parser that could swallow the next one."""
    if '"' not in text:
        return text.split(",")
    return next(csv.reader([text], strict=True))


def _row(number: int, cells: list[str], columns: Columns) -> TraceLine | LeftOut:
    if len(cells) != columns.width:
        raise UnfitError("", f"has {len(cells)} cells, the header has {columns.width}")
    at = columns.at
    asked = cells[at["gpus"]].strip()
    if asked == "0" and columns.format in _ON_CPUS:
        return LeftOut(number)
    gpus = whole(asked, "gpus", most=GPUS_MAX)
    if gpus < 1:
        raise UnfitError("gpus", "must be at least 1")
    tenant = plain_cell(cells[at["tenant"]].strip())
    if not tenant:
        raise UnfitError("tenant", "is empty")
    name = plain_cell(cells[at["name"]].strip()) if "name" in at else ""
    if name and columns.format in _NUMBERED:
        name = f"{columns.format}-{name}"
    if len(name) > NAME_MAX:
        raise UnfitError("name", f"is longer than {NAME_MAX} characters")
    unit = _UNITS.get(columns.format, 1)
    return TraceLine(
        number,
        name or f"line-{number}",
        tenant,
        gpus,
        submission(cells[at["submit"]].strip()) * unit,
        max(seconds(cells[at["duration"]].strip(), "duration") * unit, SECOND_US),
        _extra(cells, at, unit),
    )


def _extra(cells: list[str], at: Mapping[str, int], unit: int) -> dict[str, object]:
    extra: dict[str, object] = {}
    for name, reader in OPTIONAL_READERS.items():
        text = cells[at[name]].strip() if name in at else ""
        if text:
            extra[name] = reader(text, name)
    if "state" in at and cells[at["state"]].strip().upper() in _FAILED:
        extra.setdefault("exit_code", 1)
    if "job_class" in at and cells[at["job_class"]].strip() in _NO_DEADLINE:
        extra.pop("deadline_s", None)
    _fit_deadlines(extra, unit)
    return extra


def _fit_deadlines(extra: dict[str, object], unit: int) -> None:
    """One value per deadline; without deadlines a value says nothing."""
    deadlines, values = extra.get("deadline_s"), extra.pop("values", None)
    if not isinstance(deadlines, list):
        return
    extra["deadline_s"] = [deadline * unit for deadline in deadlines]
    if not isinstance(values, list):
        values = [1] * len(deadlines)
    if len(values) != len(deadlines):
        reason = f"has {len(values)} for {len(deadlines)} deadlines"
        raise UnfitError("values", reason)
    extra["values"] = values
