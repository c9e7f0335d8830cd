"""Philly's published job log: a JSON list of jobs with their attempts.

The log is read job by job, so the file is never in memory as a whole. A job has the GPUs of its
widest attempt, and the length of all attempts together. The tenant of a job is its `vc`. Source:
github.com/msr-fiddle/philly-traces, cluster_job_log.
"""

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any

from evenshare_core.simulation.trace_fields import (
    GPUS_MAX,
    NAME_MAX,
    SECONDS_MAX,
    UnfitError,
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
from evenshare_core.simulation.trace_states import end_of
from evenshare_core.simulation.trace_text import DAMAGED
from evenshare_core.units import SECOND_US

CHUNK = 256 * 1024
# No job of the log has nearly this many bytes; a longer value is an error.
JOB_MAX = 4 * 1024 * 1024
FIELDS = ("jobid", "vc", "submitted_time", "attempts")
_BETWEEN = re.compile(r"[ \t\r\n,\[\]\ufeff]*")
_NO_INSTANT = frozenset(("", "none", "null"))


def is_json(head: bytes) -> bool:
    """Return whether a file starts like a JSON object or a JSON list of objects."""
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if text.startswith(b"["):
        return text[1:].lstrip()[:1] in (b"{", b"]")
    return text.startswith(b"{")


def json_lines(file: IO[bytes]) -> tuple[Columns, Iterator[Read]]:
    """Return no columns, and an iterator over the jobs of a log.

    Raises:
        HeaderError: the first value is not a job of Philly's log.
    """
    values = _values(file)
    first = next(values, None)
    if first is None:
        raise HeaderError("the file is JSON without jobs")
    if isinstance(first, BadLine):
        raise HeaderError(f"the file starts as JSON, but {first.reason}")
    job = first[1]
    missing = [name for name in FIELDS if not isinstance(job, dict) or name not in job]
    if missing:
        raise HeaderError(
            f"the file is JSON, and its first job has no {', '.join(missing)}: only Philly's job"
            " log is read as JSON; convert other traces to CSV"
        )
    return Columns("philly_json", 0, {}), _reads(chain([first], values))


def _values(file: IO[bytes]) -> Iterator[tuple[int, Any, str] | BadLine]:
    """Yield each value of the list with the number of its first line and its text."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    parser = json.JSONDecoder()
    buffer, at, line = "", 0, 1
    is_over = False
    while True:
        begin = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        line += buffer.count("\n", at, begin)
        at = begin
        problem = ""
        if at < len(buffer):
            try:
                value, end = parser.raw_decode(buffer, at)
            except (ValueError, RecursionError) as error:
                problem = str(error)
            else:
                yield line, value, buffer[at:end]
                line += buffer.count("\n", at, end)
                at = end
                continue
        if is_over and not problem:
            return
        if is_over or len(buffer) - at > JOB_MAX:
            yield BadLine(line, "", f"is not JSON from here on ({problem})")
            return
        try:
            chunk = file.read(CHUNK)
            buffer, at = buffer[at:] + decode(chunk, not chunk), 0
        except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
            yield BadLine(line, "", f"{DAMAGED} ({error})")
            return
        is_over = not chunk


def _reads(values: Iterator[tuple[int, Any, str] | BadLine]) -> Iterator[Read]:
    doubles = Doubles()
    for item in values:
        if isinstance(item, BadLine):
            yield item
            continue
        line, job, text = item
        try:
            read = _job(line, job)
        except UnfitError as error:
            name = job.get("jobid") if isinstance(job, dict) else None
            of_job = f" (of job {shown(name)})" if isinstance(name, str) else ""
            yield BadLine(line, error.name, error.reason + of_job)
            continue
        yield doubles.marked(read, text)


def _job(line: int, job: Any) -> Read:
    if not isinstance(job, dict):
        raise UnfitError("", "is no object")
    name, tenant = _text(job, "jobid"), _text(job, "vc")
    attempts = job.get("attempts")
    if not isinstance(attempts, list) or not all(isinstance(one, dict) for one in attempts):
        raise UnfitError("attempts", "is not a list of objects")
    spans = [(_instant(one, "start_time"), _instant(one, "end_time")) for one in attempts]
    if all(start_us is None for start_us, _ in spans):
        return LeftOut(line, Remark.NEVER_RAN)
    gpus = max(_gpus(attempt) for attempt in attempts)
    if not gpus:
        return LeftOut(line)
    if gpus > GPUS_MAX:
        raise UnfitError("gpus", f"are more than {GPUS_MAX:,}")
    lengths = [max(0, b - a) for a, b in spans if a is not None and b is not None]
    if not lengths:
        return LeftOut(line, Remark.NO_LENGTH)
    length_us = sum(lengths)
    if length_us > SECONDS_MAX * SECOND_US:
        raise UnfitError("attempts", "last more than a hundred years")
    status = job.get("status")
    remark, exit_code = end_of(status if isinstance(status, str) else "")
    if remark is None and len(lengths) < len(spans):
        remark, exit_code = Remark.UNFINISHED, 1
    return TraceLine(
        line,
        name,
        tenant,
        gpus,
        submission(_text(job, "submitted_time")),
        max(length_us, SECOND_US),
        {"exit_code": exit_code} if exit_code else {},
        () if remark is None else (remark,),
    )


def _text(job: dict[str, Any], field: str) -> str:
    text = job.get(field)
    if not isinstance(text, str) or not text.strip():
        raise UnfitError(field, "is not text, or empty")
    if len(text) > NAME_MAX:
        raise UnfitError(field, f"is longer than {NAME_MAX} characters")
    return text.strip()


def _instant(attempt: dict[str, Any], field: str) -> int | None:
    text = attempt.get(field)
    if text is None or (isinstance(text, str) and text.strip().lower() in _NO_INSTANT):
        return None
    if not isinstance(text, str):
        raise UnfitError(field, "is no text")
    return submission(text.strip())


def _gpus(attempt: dict[str, Any]) -> int:
    detail = attempt.get("detail")
    nodes = [node for node in detail if isinstance(node, dict)] if isinstance(detail, list) else []
    held = [node.get("gpus") for node in nodes]
    return sum(len(gpus) for gpus in held if isinstance(gpus, list))
