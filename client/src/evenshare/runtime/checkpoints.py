"""Checkpoint files: complete or absent, newest first, fenced by the job's lease.

A file is named by (lease, sequence) and starts with one readable line:

    evenshare-checkpoint 1 lease=3 sequence=12 bytes=2048 sha256=<of the line's start and body>

It is written under a temporary name, flushed to disk and renamed, and the folder is flushed. So a
reader sees a complete file or none; the checksum detects damage by a disk or a copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .sets import (
    CheckpointSet,
    clear_unfinished,
    complete_sets,
    highest_sequence,
    name_of,
    prune,
)

MAGIC = "evenshare-checkpoint 1"
HEADER = re.compile(
    rb"(evenshare-checkpoint 1 lease=(\d+) sequence=(\d+) bytes=(\d+)) sha256=([0-9a-f]{64})\n"
)
LONGEST_HEADER = 256
# The executor replaces the lease file by renaming; a plain writer may leave it empty briefly.
LEASE_FILE_PATIENCE_S = 1.0


class StaleLeaseError(Exception):
    """A newer lease runs this job, so this process must not write any more."""


class RanksChangedError(RuntimeError):
    """The newest checkpoint has another number of ranks than this run."""

    def __init__(self, then: int, now: int) -> None:
        super().__init__(
            f"the newest checkpoint is of {then} ranks, and {now} run now: lease.resume_all()"
            " gives the states of all of them, to be divided anew"
        )


class Checkpoint(NamedTuple):
    """A checkpoint, ordered by (lease, sequence), so that one of a later lease is newer."""

    lease: int
    sequence: int
    body: bytes


class Fence:
    """The file `lease` in the job's folder. It names the lease that may write."""

    def __init__(self, folder: Path, lease: int) -> None:
        self._file = folder / "lease"
        self._lease = lease

    def check(self) -> None:
        """Raise StaleLeaseError if the file has a newer lease, or is unreadable.

        A missing file is allowed: only the portal writes it, and a job may run outside.
        """
        deadline = time.monotonic() + LEASE_FILE_PATIENCE_S
        while True:
            try:
                text = self._file.read_text("ascii").strip()
            except FileNotFoundError:
                return
            except (OSError, UnicodeDecodeError) as problem:
                text = str(problem)
            if text.isdecimal():
                break
            if time.monotonic() > deadline:
                raise StaleLeaseError(f"{self._file} holds no lease number: {text[:80]!r}")
            time.sleep(0.02)
        if int(text) > self._lease:
            raise StaleLeaseError(f"lease {text} runs this job now, this process has {self._lease}")


class Folder:
    """The checkpoints of one job, written under one of its leases."""

    def __init__(self, path: Path, lease: int, fence: Fence) -> None:
        self.path = path
        self._lease = lease
        self._fence = fence
        self._last = 0

    @property
    def last_name(self) -> str:
        """Return the name of the last written file."""
        return name_of(self._lease, self._last)

    def newest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint of one process; torn ones are skipped.

        Raises RanksChangedError if several ranks wrote a newer one.
        """
        for one in self._begin():
            if one.size == 1:
                checkpoint = read_part(self.path, one, 0)
                if checkpoint is not None:
                    return checkpoint
            elif all(read_part(self.path, one, rank) for rank in range(one.size)):
                raise RanksChangedError(one.size, 1)
        return None

    def newest_of_all(self) -> list[Checkpoint]:
        """Return the newest complete set's files by rank, for any count of ranks; empty if none."""
        for one in self._begin():
            parts = read_parts(self.path, one)
            if parts:
                return parts
        return []

    def _begin(self) -> list[CheckpointSet]:
        """Prepare the folder and return its complete sets, newest first.

        Make the folder, remove partial files of a killed writer, and continue from the highest
        number that this lease has used.
        """
        self._fence.check()
        self.path.mkdir(parents=True, exist_ok=True)
        clear_unfinished(self.path)
        self._last = highest_sequence(self.path, self._lease)
        return complete_sets(self.path)

    def write(self, body: bytes) -> Path:
        """Write a checkpoint to disk; once this returns, it survives a loss of power.

        Raises StaleLeaseError, checked before and after the slow part, and OSError (disk full).
        """
        self._fence.check()
        self._last += 1
        target = self.path / name_of(self._lease, self._last)
        put_file(target, Checkpoint(self._lease, self._last, body), self._fence)
        prune(self.path)
        return target


def put_file(target: Path, checkpoint: Checkpoint, fence: Fence) -> None:
    """Write a checkpoint atomically under its name.

    Raises StaleLeaseError, checked before and after the slow part, and OSError (disk full).
    """
    fence.check()
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            write_file(file, checkpoint)
        fence.check()
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    flush_folder(target.parent)


def read_part(folder: Path, one: CheckpointSet, rank: int) -> Checkpoint | None:
    """Return a rank's file of a set, or None if it is torn or does not match its name."""
    checkpoint = read_file(folder / one.file(rank))
    if checkpoint is None or (checkpoint.lease, checkpoint.sequence) != (one.lease, one.sequence):
        return None
    return checkpoint


def read_parts(folder: Path, one: CheckpointSet) -> list[Checkpoint]:
    """Return the files of a set by rank; empty if one of them is torn."""
    parts = []
    for rank in range(one.size):
        part = read_part(folder, one, rank)
        if part is None:
            return []
        parts.append(part)
    return parts


def write_file(file: BinaryIO, checkpoint: Checkpoint) -> None:
    start = (
        f"{MAGIC} lease={checkpoint.lease} sequence={checkpoint.sequence}"
        f" bytes={len(checkpoint.body)}"
    ).encode()
    file.write(start + b" sha256=" + _digest(start, checkpoint.body) + b"\n")
    file.write(checkpoint.body)
    file.flush()
    os.fsync(file.fileno())


def read_file(path: Path) -> Checkpoint | None:
    """Return the checkpoint in a file, or None if the file is torn or unreadable."""
    try:
        with path.open("rb") as file:
            header = HEADER.fullmatch(file.readline(LONGEST_HEADER))
            if header is None:
                return None
            start, lease, sequence, size, digest = header.groups()
            body = file.read()
    except OSError:
        return None
    if len(body) != int(size) or _digest(start, body) != digest:
        return None
    return Checkpoint(int(lease), int(sequence), body)


def flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(start: bytes, body: bytes) -> bytes:
    # Two updates avoid joining the header and a body of gigabytes in memory.
    digest = hashlib.sha256(start + b"\n")
    digest.update(body)
    return digest.hexdigest().encode()
