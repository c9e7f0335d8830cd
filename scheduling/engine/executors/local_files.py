"""Files in the folders of local jobs: untrusted, read with bounds and checks.

ROOT/<job>/                     the job's folder for all its leases; `lease` is the
                                current one's number, `progress.json` the job's report,
                                `iterations.json` the durations of its iterations,
                                `evaluations.json` the values of its stopping metric,
                                `metrics.json` the curves of its metrics,
                                `session.json` the port of an interactive job
ROOT/<job>/leases/<n>/          one lease: see `scheduling.engine.executors.shim`
ROOT/active/<token>             names the pool; exists until the lease's end is recorded
"""

import contextlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings

from scheduling.selectors import stored_texts as texts

WINDOW_BYTES = 256 * 1024
PROGRESS_BYTES = 64 * 1024
ITERATIONS_BYTES = 4096
EVALUATIONS_BYTES = 16 * 1024
USAGE_BYTES = 256 * 1024
METRICS_BYTES = 2**20
PROGRESS_DEPTH = 8
_LARGEST = 2**63

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A job may replace a file by a link or a pipe: do not follow it, and do not block on it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOG = re.compile(r"out(?:\.(\d{15}))?\.log")


class LogWindow(NamedTuple):
    """A piece of a program's output. Offsets count all written bytes, even those not kept."""

    data: bytes
    next_offset: int
    total: int

    @property
    def offset(self) -> int:
        """The start of `data`: later than requested if the requested bytes were not kept."""
        return self.next_offset - len(self.data)


def jobs_root() -> Path:
    """Return the folder of all local jobs: LOCAL_ROOT, or `jobs` in the data folder."""
    configured = getattr(settings, "LOCAL_ROOT", None)
    return Path(configured) if configured else settings.FOLDERS.jobs


def read_log(
    job_id: int, lease_number: int, offset: int = 0, limit: int = WINDOW_BYTES
) -> LogWindow:
    """Return at most `limit` (<= 256 KiB) bytes of a lease's output, starting at `offset`.

    A negative offset counts from the end. Only the first 1 MiB and a rolling tail of long output
    are kept. A window never spans the cut; a window that would start in the cut starts after it. No
    link on the way is followed. A lease without output has an empty log.
    """
    limit = max(0, min(limit, WINDOW_BYTES))
    try:
        with opened(str(int(job_id)), "leases", str(int(lease_number))) as folder:
            return _window(folder, offset, limit)
    except OSError:
        return LogWindow(b"", 0, 0)


@contextlib.contextmanager
def opened(*names: str) -> Iterator[int]:
    """Open folders from the root by descriptors, so that no folder can be replaced meanwhile."""
    descriptor = os.open(jobs_root(), _FOLDER & ~os.O_NOFOLLOW)
    try:
        for name in names:
            below = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _window(folder: int, offset: int, limit: int) -> LogWindow:
    names = {
        int(match[1] or 0): match[0] for match in map(_LOG.fullmatch, os.listdir(folder)) if match
    }
    parts = [(start, names[start], _size(folder, names[start])) for start in sorted(names)]
    total = max((start + size for start, _, size in parts), default=0)
    if offset < 0:
        offset = max(0, total + offset)
    data = b""
    for start, name, size in parts:
        if start + size <= offset or (data and start != offset):
            continue
        offset = max(offset, start)
        # Stop at the size read before: if the log grows, the window would exceed `total`.
        unread = start + size - offset
        piece = _piece(folder, name, offset - start, min(limit - len(data), unread))
        data += piece
        offset += len(piece)
        if len(data) >= limit or offset < start + size:
            break
    return LogWindow(data, min(offset, total), total)


def _size(folder: int, name: str) -> int:
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return 0


def _piece(folder: int, name: str, start: int, length: int) -> bytes:
    """Read from one file of the log; empty if the rolling tail dropped it meanwhile."""
    try:
        with opened_file(folder, name, is_shared=is_shared_folder(folder)) as descriptor:
            return os.pread(descriptor, length, start)
    except FileNotFoundError:
        return b""


def is_shared_folder(folder: int) -> bool:
    """Return whether a folder's job runs as another user (`slurm.users.WORK_MODE`)."""
    return os.fstat(folder).st_mode & 0o2770 == 0o2770


@contextlib.contextmanager
def opened_file(folder: int, name: str, *, is_shared: bool) -> Iterator[int]:
    """Open a regular file of a folder; `is_shared`: the folder's job runs as another user.

    Raises:
        FileNotFoundError: it is missing, is no regular file, or cannot be opened.
    """
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        raise FileNotFoundError(name) from error
    try:
        if not is_readable(os.fstat(descriptor), is_shared=is_shared):
            raise FileNotFoundError(name)
        yield descriptor
    finally:
        os.close(descriptor)


def is_readable(status: os.stat_result, *, is_shared: bool) -> bool:
    """Return whether it is a regular file of the job itself.

    Hard links are refused, because a job of another user could make us read any of our files.
    """
    return stat.S_ISREG(status.st_mode) and not (is_shared and status.st_nlink > 1)


def read_progress(job_id: int) -> dict[str, Any] | None:
    """Return a job's own report, or None if there is none that can be stored."""
    try:
        with opened(str(int(job_id))) as folder:
            text = _piece(folder, "progress.json", 0, PROGRESS_BYTES + 1)
    except OSError:
        return None
    return parse_progress(text)


def read_iterations(job_id: int) -> bytes:
    """Return a job's report of its iterations; cut an overlong report one byte above the limit."""
    return _said(job_id, "iterations.json", ITERATIONS_BYTES)


def read_evaluations(job_id: int) -> bytes:
    """Return a job's report of its metric; cut an overlong report one byte above the limit."""
    return _said(job_id, "evaluations.json", EVALUATIONS_BYTES)


def read_metrics(job_id: int) -> bytes:
    """Return the curves of a job's metrics; cut an overlong file one byte above the limit."""
    return _said(job_id, "metrics.json", METRICS_BYTES)


def read_usage(job_id: int, lease_number: int, rank: int) -> bytes:
    """Return the shim's samples for a node; cut an overlong file one byte above the limit."""
    try:
        with opened(str(int(job_id)), "leases", str(int(lease_number))) as folder:
            return _piece(folder, f"usage.{int(rank)}.json", 0, USAGE_BYTES + 1)
    except OSError:
        return b""


def _said(job_id: int, name: str, most: int) -> bytes:
    try:
        with opened(str(int(job_id))) as folder:
            return _piece(folder, name, 0, most + 1)
    except OSError:
        return b""


def said_of_job(job_id: int, name: str, most: int) -> tuple[bytes, float]:
    """Return a job's file, cut one byte above `most`, and when it was written (s since 1970)."""
    try:
        with opened(str(int(job_id))) as folder:
            modified_s = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
            return _piece(folder, name, 0, most + 1), modified_s
    except OSError:
        return b"", 0.0


def said_of_lease(
    text: bytes, most: int, lease: int, refusal: Callable[[Any], str]
) -> tuple[dict[str, Any] | None, str]:
    """Return a file's report on a lease, and a reason to refuse it; (None, "") without a report."""
    if not text:
        return None, ""
    if len(text) > most:
        return None, texts.TOO_LONG.format(most=most)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None, texts.NO_JSON
    why = refusal(said)
    # The file is from an earlier lease; the present lease has not reported yet.
    return (None, why) if why or said["lease"] != lease else (said, "")


def parse_progress(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object that the database can store: bounded, finite, without NUL."""
    if len(text) > PROGRESS_BYTES:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_storable_progress(value) else None


def is_storable_progress(value: object) -> bool:
    """Return whether the value is an object that the database can store and a page can show."""
    return isinstance(value, dict) and _storable(value, PROGRESS_DEPTH)


def _storable(value: Any, depth: int) -> bool:
    """Return whether jsonb accepts it: no NUL, lone surrogate, NaN, or number beyond 64 bits."""
    if isinstance(value, dict):
        return depth > 0 and all(
            _storable(key, 0) and _storable(one, depth - 1) for key, one in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_storable(one, depth - 1) for one in value)
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, int | float):
        return math.isfinite(value) if isinstance(value, float) else abs(value) < _LARGEST
    return value is None
