"""Readers of traces of real clusters, line by line, with the reasons for unusable lines.

A bad line does not affect the others: each line is limited in length and parsed separately. An open
quotation mark or a torn byte ends with its line. Memory holds only the current line and the hashes
that detect repeated jobs.

| format | columns | tenant | submission |
|---|---|---|---|
| philly | job_id, tenant, submit_time_s, duration_s, gpus | tenant | seconds |
| helios | job_id, vc, gpu_num, cpu_num, state, submit_time, duration | vc | instant |
| chronus | set, job_id, tenant, submit_time_min, duration_min, gpus, model, job_type, | tenant | |
| | deadline_min_list and value_list, both separated by `-`; after the submission | | minutes |
| own | name (trace_id), tenant, gpus, submit_s, duration_s, state, `OPTIONAL` | tenant | seconds |
| sacct | `evenshare_core.simulation.trace_slurm` | account | instant |
| swf | `evenshare_core.simulation.trace_swf` | group | seconds |
| philly_json | `evenshare_core.simulation.trace_json` | vc | instant |
"""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import IO

from evenshare_core.csv_cells import plain_cell
from evenshare_core.simulation.trace_fields import (
    NAME_MAX,
    OPTIONAL_READERS,
    UnfitError,
    gpus_of,
    seconds,
    shown,
    submission,
)
from evenshare_core.simulation.trace_json import is_json, json_lines
from evenshare_core.simulation.trace_reads import (
    BadLine,
    Columns,
    Doubles,
    HeaderError,
    LeftOut,
    Read,
    Remark,
    TraceLine,
)
from evenshare_core.simulation.trace_slurm import is_sacct, sacct_columns, sacct_lines
from evenshare_core.simulation.trace_states import end_of
from evenshare_core.simulation.trace_swf import SWF_FIELDS, is_swf, swf_lines
from evenshare_core.simulation.trace_text import head_of, numbered_lines, unpacked
from evenshare_core.units import SECOND_US

REQUIRED = ("tenant", "gpus", "submit", "duration")
OPTIONAL = (
    *("name", "cpus", "memory_mb", "weight", "gpu_types", "max_price", "utility", "estimate_s"),
    *("exit_code", "model", "deadline_s", "values", "cancel_s", "cold_s", "checkpoint_s"),
)
FIELDS = (*REQUIRED, *OPTIONAL, "state", "job_class", "set")

# The columns of each format, with the field that each column gives.
FORMATS: dict[str, dict[str, str]] = {
    "philly": {
        "job_id": "name",
        "tenant": "tenant",
        "submit_time_s": "submit",
        "duration_s": "duration",
        "gpus": "gpus",
        "state": "state",
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
        "state": "state",
        **{name: name for name in OPTIONAL},
    },
}
# Values of `form`; the last two have no header of column names.
FORMS = (*FORMATS, "sacct", "swf", "philly_json")
# A format is recognised by a header with all of these columns.
_SIGNS: dict[str, frozenset[str]] = {
    "philly": frozenset({"tenant", "submit_time_s", "duration_s", "gpus"}),
    "helios": frozenset({"vc", "gpu_num", "submit_time", "duration"}),
    "chronus": frozenset({"tenant", "submit_time_min", "duration_min", "deadline_min_list"}),
    "own": frozenset({"tenant", "gpus", "submit_s", "duration_s"}),
}
# Seconds in a unit of the format's times.
_NO_SETS = "the file has no column for sets: omit --set"
_UNITS = {"chronus": 60}
# Known columns that are not read; messages do not propose them for a mapping.
_KNOWN = frozenset({"submit_ts", "user", "node_num", "start_time", "end_time", "queue"})
# Formats whose job names are bare numbers.
_NUMBERED = frozenset({"philly", "helios", "chronus"})
# The most columns that a message names.
NAMED = 12
_NO_DEADLINE = frozenset({"best", "best_effort"})
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def trace_lines(
    file: IO[bytes],
    *,
    form: str = "auto",
    mapping: Mapping[str, str] | None = None,
    chosen: str = "",
) -> tuple[Columns, Iterator[Read]]:
    """Return a file's columns, and an iterator over its lines, plain or gzip.

    `form` is one of `FORMS` or `auto`. `mapping` maps columns to fields and overrides the format.
    `chosen` is the set to read from a file with several sets.

    Raises:
        HeaderError: the file is not UTF-8 text, a required field has no column, the mapping
            has an unknown column or field, or `chosen` and the file's sets do not match.
    """
    plain = unpacked(file)
    head = head_of(plain)
    mapping = mapping or {}
    if form == "philly_json" or (form == "auto" and is_json(head)):
        _check_fixed(mapping, chosen, "JSON")
        return json_lines(plain)
    if form == "swf" or (form == "auto" and is_swf(head)):
        _check_fixed({}, chosen, "SWF")
        _check_mapping(SWF_FIELDS, mapping)
        return swf_lines(numbered_lines(plain, comment=b";"), mapping)
    numbered = numbered_lines(plain)
    first = next(numbered, None)
    if first is None or isinstance(first, BadLine):
        raise HeaderError(f"the first line cannot be read: {first.reason if first else 'empty'}")
    text = first[1].removeprefix("\ufeff")
    if form == "sacct" or (form == "auto" and is_sacct(text)):
        _check_fixed({}, chosen, "sacct")
        names = [cell.strip() for cell in text.split("|")]
        _check_mapping(names, mapping)
        return sacct_lines(numbered, sacct_columns(names, mapping))
    columns = columns_of(_header(text), form=form, mapping=mapping)
    if ("set" in columns.at) != bool(chosen):
        several = "the file has several sets of jobs: choose one with --set"
        raise HeaderError(_NO_SETS if chosen else several)
    return columns, _rows(numbered, columns, chosen)


def _check_fixed(mapping: Mapping[str, str], chosen: str, what: str) -> None:
    if mapping:
        raise HeaderError(f"{what} has no columns to map: omit --map")
    if chosen:
        raise HeaderError(_NO_SETS)


def _header(text: str) -> list[str]:
    """Return the names of the columns.

    Raises:
        HeaderError: the names are not separated by commas, or a quotation mark is out of place.
    """
    commas = text.count(",")
    for sign, name in _SEPARATORS.items():
        if text.count(sign) > commas:
            raise HeaderError(f"{name} separate the cells of the first line; use commas")
    if not commas and len(text.split()) > 2:
        raise HeaderError(f"spaces separate the words of the first line: {shown(text)}; use commas")
    if "\r" in text:
        raise HeaderError("lines end with carriage returns only; use newlines")
    try:
        return [cell.strip() for cell in _cells(text)]
    except csv.Error as error:
        raise HeaderError(
            f"the first line is not CSV ({error}): {shown(text)};"
            " it names the columns, as in tenant,gpus,submit_s,duration_s"
        ) from error


def columns_of(header: Sequence[str], *, form: str, mapping: Mapping[str, str]) -> Columns:
    """Return the positions of the fields in a header."""
    doubled = sorted(name for name, times in Counter(header).items() if times > 1)
    if doubled:
        raise HeaderError(f"repeated columns: {_some(doubled)}")
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
            f" (unrecognised columns: {_some(unknown)})"
        )
    return Columns(known if known in FORMATS else "mapped", len(header), at)


def _some(names: Sequence[str]) -> str:
    """Return the first names for a message, without control characters."""
    plain = ("".join(sign if sign.isprintable() else "?" for sign in name[:40]) for name in names)
    text = ", ".join(islice(plain, NAMED)) or "none"
    return text + (f", and {len(names) - NAMED:,} more" if len(names) > NAMED else "")


def _check_mapping(header: Sequence[str], mapping: Mapping[str, str]) -> None:
    for column, name in mapping.items():
        if column not in header:
            raise HeaderError(f"the file has no column {column!r} to map")
        if name not in FIELDS:
            raise HeaderError(f"{name!r} is not a field; fields are {', '.join(FIELDS)}")
    fields = list(mapping.values())
    doubled = sorted({name for name in fields if fields.count(name) > 1})
    if doubled:
        raise HeaderError(f"two columns are mapped to {', '.join(doubled)}")


def _format_of(header: Sequence[str]) -> str:
    return next((name for name, signs in _SIGNS.items() if signs <= set(header)), "")


def _rows(
    numbered: Iterator[tuple[int, str] | BadLine], columns: Columns, chosen: str
) -> Iterator[Read]:
    doubles = Doubles()
    for item in numbered:
        if isinstance(item, BadLine):
            yield item
            continue
        number, text = item
        try:
            cells = _cells(text)
            if chosen and _of_another_set(cells, columns, chosen):
                continue
            read = _row(number, cells, columns)
        except csv.Error as error:
            yield BadLine(number, "", f"is not CSV ({error})")
            continue
        except UnfitError as error:
            yield BadLine(number, error.name, error.reason)
            continue
        yield doubles.marked(read, text, is_named="name" in columns.at)


def _of_another_set(cells: list[str], columns: Columns, chosen: str) -> bool:
    place = columns.at["set"]
    return len(cells) == columns.width and cells[place].strip() != chosen


def _cells(text: str) -> list[str]:
    """Split one line into cells; a CSV reader of the file could consume the next line too."""
    if '"' not in text:
        return text.split(",")
    return next(csv.reader([text], strict=True))


def _row(number: int, cells: list[str], columns: Columns) -> TraceLine | LeftOut:
    if len(cells) != columns.width:
        raise UnfitError("", f"has {len(cells)} cells, the header has {columns.width}")
    at = columns.at
    gpus, is_fraction = gpus_of(cells[at["gpus"]].strip())
    if not gpus:
        return LeftOut(number)
    tenant = plain_cell(cells[at["tenant"]].strip())
    if not tenant:
        raise UnfitError("tenant", "is empty")
    name = plain_cell(cells[at["name"]].strip()) if "name" in at else ""
    if name and columns.format in _NUMBERED:
        name = f"{columns.format}-{name}"
    if len(name) > NAME_MAX:
        raise UnfitError("name", f"is longer than {NAME_MAX} characters")
    unit = _UNITS.get(columns.format, 1)
    extra, remarks = _extra(cells, at, unit)
    return TraceLine(
        number,
        name or f"line-{number}",
        tenant,
        gpus,
        submission(cells[at["submit"]].strip()) * unit,
        max(seconds(cells[at["duration"]].strip(), "duration") * unit, SECOND_US),
        extra,
        (Remark.FRACTION, *remarks) if is_fraction else remarks,
    )


def _extra(
    cells: list[str], at: Mapping[str, int], unit: int
) -> tuple[dict[str, object], tuple[Remark, ...]]:
    extra: dict[str, object] = {}
    remarks: tuple[Remark, ...] = ()
    for name, reader in OPTIONAL_READERS.items():
        text = cells[at[name]].strip() if name in at else ""
        if text:
            extra[name] = reader(text, name)
    if "state" in at:
        remark, exit_code = end_of(cells[at["state"]].strip())
        remarks = () if remark is None else (remark,)
        if exit_code:
            extra.setdefault("exit_code", exit_code)
    if "job_class" in at and cells[at["job_class"]].strip() in _NO_DEADLINE:
        extra.pop("deadline_s", None)
    _fit_deadlines(extra, unit)
    return extra, remarks


def _fit_deadlines(extra: dict[str, object], unit: int) -> None:
    """Require a value per deadline; drop values without deadlines."""
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
