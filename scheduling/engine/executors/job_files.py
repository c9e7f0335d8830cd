"""The files that a job's program wrote into its folder: untrusted, listed and read within bounds.

Names are opened one by one from the root, by descriptors, and no link is followed. So a folder that
a job replaces by a link meanwhile is not entered. Files of the portal and of `evenshare.runtime`
are left out, and so are names that start with a dot: programs keep passwords and caches there.
"""

import contextlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from scheduling.engine.executors.local_files import (
    is_readable,
    is_shared_folder,
    opened,
    opened_file,
)

# Bounds of a list: files, nested folders, and names that are read.
FILES_MAX, DEPTH_MAX, NAMES_MAX = 1000, 8, 20_000
WINDOW_BYTES = 8 * 2**20
NAME_MAX = 255
_NOT_OF_PROGRAM = frozenset(
    {
        *("leases", "ranks", "lease", "uid", "unix-user"),
        *("progress.json", "iterations.json", "evaluations.json", "metrics.json"),
        "session.json",
    }
)


class FileEntry(NamedTuple):
    """A file by its path below the job's folder; `modified_s`: seconds since 1970."""

    path: str
    size: int
    modified_s: float


class FileTree(NamedTuple):
    """Files of a job's folder, upper folders first, by name. `is_cut`: there may be more."""

    files: tuple[FileEntry, ...] = ()
    is_cut: bool = False


class FileWindow(NamedTuple):
    """A piece of a file from `offset`. `version` changes with the file's time or size."""

    data: bytes
    offset: int
    total: int
    version: str


def list_files(job_id: int) -> FileTree:
    """Return at most `FILES_MAX` files of a job; empty if its folder cannot be read."""
    files: list[FileEntry] = []
    folders: deque[tuple[str, ...]] = deque([()])
    names_left, is_cut, shared = NAMES_MAX, False, False
    while folders:
        parts = folders.popleft()
        with contextlib.suppress(OSError), opened(str(int(job_id)), *parts) as folder:
            shared = is_shared_folder(folder) if not parts else shared
            with os.scandir(folder) as entries:
                names = [entry.name for entry in itertools.islice(entries, names_left + 1)]
            is_cut |= len(names) > names_left
            names_left -= min(names_left, len(names))
            for name, status in _statuses(folder, names, is_top=not parts):
                if stat.S_ISDIR(status.st_mode):
                    is_cut |= len(parts) + 2 > DEPTH_MAX
                    folders += [(*parts, name)] if len(parts) + 2 <= DEPTH_MAX else []
                elif is_readable(status, is_shared=shared):
                    path = "/".join((*parts, name))
                    files.append(FileEntry(path, status.st_size, status.st_mtime))
        if len(files) > FILES_MAX or (not names_left and folders):
            return FileTree(tuple(files[:FILES_MAX]), is_cut=True)
    return FileTree(tuple(files), is_cut)


def _statuses(
    folder: int, names: list[str], *, is_top: bool
) -> Iterator[tuple[str, os.stat_result]]:
    for name in sorted(names):
        if _is_shown(name) and not (is_top and name in _NOT_OF_PROGRAM):
            with contextlib.suppress(OSError):
                yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def read_file(job_id: int, path: str, offset: int, limit: int) -> FileWindow | None:
    """Return at most `limit` (<= 8 MiB) bytes of a file; None if it is missing or no file of a job.

    `offset`: from 0; negative: from the end.
    """
    parts = path.split("/")
    if not _is_file_path(parts):
        return None
    try:
        with opened(str(int(job_id))) as top:
            shared = is_shared_folder(top)
        with (
            opened(str(int(job_id)), *parts[:-1]) as folder,
            opened_file(folder, parts[-1], is_shared=shared) as descriptor,
        ):
            status = os.fstat(descriptor)
            begin = offset if offset >= 0 else max(0, status.st_size + offset)
            data = b""
            # Stop at the size read before: a growing file would exceed `total`.
            if begin < status.st_size:
                length = min(limit, WINDOW_BYTES, status.st_size - begin)
                data = os.pread(descriptor, length, begin)
    except OSError:
        return None
    version = f"{status.st_mtime_ns:x}-{status.st_size:x}"
    return FileWindow(data, begin, status.st_size, version)


def _is_file_path(parts: list[str]) -> bool:
    return (
        len(parts) <= DEPTH_MAX and all(map(_is_shown, parts)) and parts[0] not in _NOT_OF_PROGRAM
    )


def _is_shown(name: str) -> bool:
    """Return whether a name can be shown and requested: printable text, not hidden."""
    return name.isprintable() and 0 < len(name) <= NAME_MAX and not name.startswith(".")
