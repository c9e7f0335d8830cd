"""Jobs in the Standard Workload Format: 18 numbers a line, comments after `;`, -1 if unknown.

The format counts processors, and each processor is read as a GPU. The tenant of a job is its group,
or its user if the group is unknown. Lines with status 2, 3 or 4 are parts of jobs that also have a
line for the whole job. Source: Feitelson, the Standard Workload Format, version 2.2.
"""

import re
from collections.abc import Iterator, Mapping

from evenshare_core.simulation.trace_fields import (
    OPTIONAL_READERS,
    UnfitError,
    gpus_of,
    seconds,
    submission,
)
from evenshare_core.simulation.trace_reads import (
    BadLine,
    Columns,
    Doubles,
    LeftOut,
    Read,
    Remark,
    TraceLine,
)
from evenshare_core.units import SECOND_US

# The numbers of a line, in order; `--map` uses these names.
SWF_FIELDS = (
    "job", "submit_time", "wait_time", "run_time", "allocated_processors", "cpu_time",
    "used_memory", "requested_processors", "requested_time", "requested_memory", "status", "user",
    "group", "executable", "queue", "partition", "preceding_job", "think_time",
)  # fmt: skip # a table
_AT = {
    "name": 0, "submit": 1, "duration": 3, "gpus": 4, "asked_gpus": 7, "state": 10, "tenant": 12,
    "user": 11,
}  # fmt: skip # a table
_CANCELLED = "5"
_PARTS = frozenset(("2", "3", "4"))
_ENDS: dict[str, tuple[Remark | None, int]] = {
    "0": (Remark.FAILED, 1),
    "1": (None, 0),
    _CANCELLED: (Remark.CANCELLED, 143),
}
_NUMBERS = re.compile(rb"\s*(?:-?[0-9]+(?:\.[0-9]+)?\s+){17}-?[0-9]+(?:\.[0-9]+)?\s*")
_COMMENT = re.compile(rb";+\s*(?:$|[^;]*$)")


def is_swf(head: bytes) -> bool:
    """Return whether a file starts with a comment after `;`, or with 18 numbers."""
    lines = [line for line in head.splitlines() if line.strip()]
    if not lines:
        return False
    return bool(_COMMENT.fullmatch(lines[0]) or _NUMBERS.fullmatch(lines[0]))


def swf_lines(
    numbered: Iterator[tuple[int, str] | BadLine], mapping: Mapping[str, str]
) -> tuple[Columns, Iterator[Read]]:
    """Return the columns, and an iterator over jobs; `mapping` has a field by a number's name."""
    at = _AT | {name: SWF_FIELDS.index(column) for column, name in mapping.items()}
    columns = Columns("swf", len(SWF_FIELDS), at)
    return columns, _reads(numbered, columns)


def _reads(numbered: Iterator[tuple[int, str] | BadLine], columns: Columns) -> Iterator[Read]:
    doubles = Doubles()
    for item in numbered:
        if isinstance(item, BadLine):
            yield item
            continue
        number, text = item
        try:
            read = _row(number, text.split(), columns.at)
        except UnfitError as error:
            yield BadLine(number, error.name, error.reason)
            continue
        yield doubles.marked(read, text)


def _row(number: int, cells: list[str], at: Mapping[str, int]) -> Read:
    if len(cells) != len(SWF_FIELDS):
        raise UnfitError("", f"has {len(cells)} numbers, the format has {len(SWF_FIELDS)}")
    state, length = cells[at["state"]], cells[at["duration"]]
    if state in _PARTS:
        return LeftOut(number, Remark.PART)
    if length in ("-1", "0") and state == _CANCELLED:
        return LeftOut(number, Remark.NEVER_RAN)
    asked = _known(cells, at["gpus"]) or _known(cells, at["asked_gpus"])
    if not asked:
        reason = "is unknown: there are no allocated and no requested processors"
        raise UnfitError("gpus", reason)
    gpus, is_fraction = gpus_of(asked)
    if not gpus:
        return LeftOut(number)
    if length == "-1":
        return LeftOut(number, Remark.NO_LENGTH)
    remark, exit_code = _ENDS.get(state, (Remark.UNKNOWN_STATE, 0))
    remarks = ((Remark.FRACTION,) if is_fraction else ()) + (() if remark is None else (remark,))
    return TraceLine(
        number,
        f"swf-{cells[at['name']]}",
        _tenant(cells, at),
        gpus,
        submission(cells[at["submit"]]),
        max(seconds(length, "duration"), SECOND_US),
        _extra(cells, at, exit_code),
        remarks,
    )


def _extra(cells: list[str], at: Mapping[str, int], exit_code: int) -> dict[str, object]:
    extra: dict[str, object] = {}
    for name, reader in OPTIONAL_READERS.items():
        if name in at and (text := _known(cells, at[name])):
            extra[name] = reader(text, name)
    if exit_code:
        extra.setdefault("exit_code", exit_code)
    return extra


def _known(cells: list[str], place: int) -> str:
    return "" if cells[place] == "-1" else cells[place]


def _tenant(cells: list[str], at: Mapping[str, int]) -> str:
    for place in (at["tenant"], at["user"]):
        if number := _known(cells, place):
            return f"{SWF_FIELDS[place]}-{number}"
    raise UnfitError("tenant", "is unknown: there is no group and no user")
