"""Jobs from `sacct --parsable2`: a line of names, then a line per job, step or run.

| of a job | the first of these columns with a value |
|---|---|
| name | JobID |
| tenant | Account, User |
| GPUs | gres/gpu of AllocTRES, of ReqTRES; gpu of AllocGRES, of ReqGRES, times NNodes |
| submission | Submit, an instant in UTC unless it has a time zone |
| length | ElapsedRaw, Elapsed, or from Start to End |
| end | State |
| CPUs and memory | cpu and mem of AllocTRES, of ReqTRES |

Steps are parts of their jobs, and left out. With `-D`, `sacct` also prints earlier runs of requeued
jobs. Only a job's last run counts, as without `-D`, because it restarted the work.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from evenshare_core.simulation.trace_fields import (
    NAME_MAX,
    OPTIONAL_READERS,
    SECONDS_MAX,
    TOO_LONG,
    UnfitError,
    gpus_of,
    seconds,
    shown,
    submission,
)
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
from evenshare_core.simulation.trace_states import end_of, state_word
from evenshare_core.units import SECOND_US

_FIELDS = {
    "tenant": ("account", "user"),
    "gpus": ("alloctres", "reqtres", "allocgres", "reqgres"),
    "submit": ("submit",),
    "duration": ("elapsedraw", "elapsed", "end"),
}
_READ = frozenset(
    ("jobid", "state", "start", "nnodes", *(name for names in _FIELDS.values() for name in names))
)
_COMMAND = (
    "sacct -P --allusers --format="
    "JobID,Account,User,State,Submit,Start,End,ElapsedRaw,NNodes,ReqTRES,AllocTRES"
)
# Slurm's values for a time that has not come yet.
_NO_INSTANT = frozenset(("", "unknown", "none", "n/a", "invalid"))
_NO_TEXT = frozenset(("", "(null)", "n/a"))
# States of a run after which the job may run again.
_PUT_BACK = frozenset(
    (
        "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "PREEMPTED", "NODE_FAIL",
        "BOOT_FAIL", "REVOKED", "RESIZING", "SUSPENDED",
    )
)  # fmt: skip # a table
_MAY_NOT_HAVE_RUN = frozenset(
    ("PENDING", "CANCELLED", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "BOOT_FAIL", "DEADLINE")
)
_TRES_GPU = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]{1,9})(?=,|$)", re.ASCII)
_GRES_GPU = re.compile(
    r"(?:^|[,:/])gpu(:[A-Za-z_][\w.-]*)?(?:[:=]([0-9]{1,9}))?(?=[,(]|$)", re.ASCII
)
_TRES = re.compile(r"(?:^|,)(cpu|mem)=([0-9]{1,12})(?:\.[0-9]+)?([KMGTP]?)", re.ASCII)
_ELAPSED = re.compile(
    r"(?:([0-9]{1,6})-)?(?:([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{2})(?:\.[0-9]+)?", re.ASCII
)
_IN_MB = {"K": 1 / 1024, "": 1 / 1024**2, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


def is_sacct(text: str) -> bool:
    """Return whether a first line is from `sacct`, with or without -P."""
    return "jobid" in re.split(r"[|\s]+", text.lower()) and "," not in text


def sacct_columns(header: Sequence[str], mapping: Mapping[str, str]) -> Columns:
    """Return the positions of columns, by lower-case name and by fields of the mapping.

    Raises:
        HeaderError: no vertical bars separate the columns, or a required column is missing.
    """
    if len(header) < 2:
        raise HeaderError(f"no vertical bars separate sacct's columns; run {_COMMAND}")
    names = [name.lower() for name in header]
    at = {name: names.index(name) for name in names if name in _READ}
    for column, name in mapping.items():
        at[f"={name}"] = header.index(column)
    missing = [
        f"{field} ({' or '.join(_header_name(name) for name in columns)})"
        for field, columns in _FIELDS.items()
        if f"={field}" not in at and not any(name in at for name in columns)
    ]
    if "jobid" not in at and "=name" not in at:
        missing.insert(0, "name (JobID)")
    if missing:
        raise HeaderError(
            f"no column for {', '.join(missing)}; run {_COMMAND}"
            " or name another with --map COLUMN=FIELD"
        )
    return Columns("sacct", len(header), at)


def _header_name(column: str) -> str:
    known = {"alloctres": "AllocTRES", "reqtres": "ReqTRES", "elapsedraw": "ElapsedRaw"}
    known |= {"allocgres": "AllocGRES", "reqgres": "ReqGRES"}
    return known.get(column, column.capitalize())


def sacct_lines(
    numbered: Iterator[tuple[int, str] | BadLine], columns: Columns
) -> tuple[Columns, Iterator[Read]]:
    """Return the columns, and an iterator over jobs; it yields unfinished requeued jobs last."""
    return columns, _reads(numbered, columns)


def _reads(numbered: Iterator[tuple[int, str] | BadLine], columns: Columns) -> Iterator[Read]:
    put_back: dict[str, TraceLine] = {}
    over: set[int] = set()
    doubles = Doubles()
    job_at = columns.at.get("jobid", -1)
    mapped = tuple(name for name in OPTIONAL_READERS if f"={name}" in columns.at)
    for item in numbered:
        if isinstance(item, BadLine):
            yield item
            continue
        number, text = item
        if _is_step(text, job_at):
            yield LeftOut(number, Remark.PART)
            continue
        try:
            row = _SacctRow(number, _cells(text, columns), columns)
            read = row.read(mapped)
        except UnfitError as error:
            yield BadLine(number, error.name, error.reason)
            continue
        if row.name in put_back:
            yield LeftOut(put_back.pop(row.name).line, Remark.EARLIER_RUN)
        if isinstance(read, TraceLine):
            if row.word in _PUT_BACK:
                # The file may list a job's last run first.
                if hash(row.name) in over:
                    yield LeftOut(number, Remark.EARLIER_RUN)
                else:
                    put_back[row.name] = read
                continue
            over.add(hash(row.name))
        yield doubles.marked(read, text)
    yield from put_back.values()


def _is_step(text: str, job_at: int) -> bool:
    """Return whether a line is a step, such as `17.batch`.

    Most lines are steps, so only the cells up to the job's id are split.
    """
    cells = text.split("|", job_at + 1)
    return 0 <= job_at < len(cells) and "." in cells[job_at]


def _cells(text: str, columns: Columns) -> list[str]:
    cells = [cell.strip() for cell in text.split("|")]
    if len(cells) != columns.width:
        raise UnfitError(
            "",
            f"has {len(cells)} cells, the header has {columns.width}; a name may contain a |:"
            " omit columns such as JobName and Comment",
        )
    return cells


class _SacctRow:
    """A line of `sacct`: `name` is the job's id, `word` its state."""

    __slots__ = ("at", "cells", "name", "number", "word")

    def __init__(self, number: int, cells: Sequence[str], columns: Columns) -> None:
        self.number, self.cells, self.at = number, cells, columns.at
        self.name = self.cell("=name") or self.cell("jobid")
        self.word = state_word(self.cell("=state") or self.cell("state"))

    def cell(self, name: str) -> str:
        """Return the cell of a column (in lower case) or of a mapped field (`=field`), or ""."""
        place = self.at.get(name)
        return "" if place is None else self.cells[place]

    def read(self, mapped: Sequence[str]) -> Read:
        """Return the job, or the reason to skip it. `mapped` has the optional fields with a column.

        Raises:
            UnfitError: a cell cannot be read.
        """
        if not self.name:
            raise UnfitError("name", "is empty")
        length_us = self._length_us()
        if self._never_ran(length_us):
            return LeftOut(self.number, Remark.NEVER_RAN)
        gpus, is_fraction = self._gpus()
        if not gpus:
            return LeftOut(self.number)
        if length_us is None:
            return LeftOut(self.number, Remark.NO_LENGTH)
        remark, exit_code = end_of(self.word)
        if remark is None and "end" in self.at and not _is_instant(self.cell("end")):
            remark, exit_code = Remark.UNFINISHED, 1
        remarks = ((Remark.FRACTION,) if is_fraction else ()) + (
            () if remark is None else (remark,)
        )
        extra = self._extra(mapped)
        if exit_code:
            extra.setdefault("exit_code", exit_code)
        name = f"slurm-{self.name}"
        if len(name) > NAME_MAX:
            raise UnfitError("name", f"is longer than {NAME_MAX} characters")
        length_us = max(length_us, SECOND_US)
        submit_us = submission(self.cell("=submit") or self.cell("submit"))
        return TraceLine(
            self.number, name, self._tenant(), gpus, submit_us, length_us, extra, remarks
        )

    def _never_ran(self, length_us: int | None) -> bool:
        if self.word in _MAY_NOT_HAVE_RUN and not length_us:
            return True
        return "start" in self.at and not _is_instant(self.cell("start"))

    def _length_us(self) -> int | None:
        """Return the job's run time, so far if it still runs; None if no column has it."""
        if mapped := self.cell("=duration"):
            return seconds(mapped, "duration")
        if raw := self.cell("elapsedraw"):
            return seconds(raw, "duration")
        if elapsed := self.cell("elapsed"):
            return _elapsed_us(elapsed)
        start, end = self.cell("start"), self.cell("end")
        if not _is_instant(start) or not _is_instant(end):
            return None
        return max(0, submission(end) - submission(start))

    def _gpus(self) -> tuple[int, bool]:
        if mapped := self.cell("=gpus"):
            return gpus_of(mapped)
        for column in ("alloctres", "reqtres"):
            if gpus := _tres(self.cell(column)).gpus:
                return gpus_of(str(gpus))
        nodes = self.cell("nnodes")
        times = int(nodes) if nodes.isascii() and nodes.isdigit() and len(nodes) < 7 else 1
        for column in ("allocgres", "reqgres"):
            if gpus := _counted(_GRES_GPU.findall(self.cell(column))):
                return gpus_of(str(gpus * times))
        return 0, False

    def _tenant(self) -> str:
        for name in ("=tenant", "account", "user"):
            tenant = self.cell(name)
            if tenant.lower() not in _NO_TEXT:
                return tenant
        raise UnfitError("tenant", "is empty: there is no account and no user")

    def _extra(self, mapped: Sequence[str]) -> dict[str, object]:
        extra = dict(_tres(self.cell("alloctres") or self.cell("reqtres")).extra)
        for name in mapped:
            if text := self.cell(f"={name}"):
                extra[name] = OPTIONAL_READERS[name](text, name)
        return extra


class _Tres(NamedTuple):
    """The GPUs in a list of trackable resources, and the other resources by the job's field."""

    gpus: int
    extra: Mapping[str, object]


# Many jobs of a file have equal requests.
@lru_cache(maxsize=4096)
def _tres(text: str) -> _Tres:
    extra: dict[str, object] = {}
    for kind, count, unit in _TRES.findall(text):
        if kind == "cpu":
            extra["cpus"] = int(count)
        elif memory_mb := int(int(count) * _IN_MB[unit]):
            extra["memory_mb"] = memory_mb
    return _Tres(_counted(_TRES_GPU.findall(text)), extra)


def _is_instant(text: str) -> bool:
    return text.lower() not in _NO_INSTANT


def _counted(pairs: Sequence[tuple[str, str]]) -> int:
    """Return the GPUs of (type, count) pairs: the untyped count if present, else the sum."""
    counts = [(kind, int(count or 1)) for kind, count in pairs]
    of_all = [count for kind, count in counts if not kind]
    return of_all[0] if of_all else sum(count for _, count in counts)


def _elapsed_us(text: str) -> int:
    match = _ELAPSED.fullmatch(text)
    if not match:
        raise UnfitError("duration", f"is not a time such as 1-02:03:04: {shown(text)}")
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    length_s = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if length_s > SECONDS_MAX:
        raise UnfitError("duration", f"{TOO_LONG}: {shown(text)}")
    return length_s * SECOND_US
