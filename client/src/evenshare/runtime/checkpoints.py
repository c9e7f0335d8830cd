"""Checkpoint files: complete or absent, newest first, fenced by the job's lease.

A file is named by (lease, sequence) and starts with one readable line:

    evenshare-checkpoint 1 lease=3 sequence=12 bytes=2048 sha256=<of the line's start and body>

It is written beside its name, flushed to the disk, renamed, and the folder is flushed.
So a reader sees a whole file or none; the checksum finds what a disk or a copy tore.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

KEEP = 2
MAGIC = "evenshare-checkpoint 1"
NAME = re.compile(r"(\d{6,})-(\d{8,})\.ckpt")
UNFINISHED = re.compile(r"\.\d{6,}-\d{8,}\.ckpt\.\d+")
HEADER = re.compile(
    rb"(evenshare-checkpoint 1 lease=(\d+) sequence=(\d+) bytes=(\d+)) sha256=([0-9a-f]{64})\n"
)
LONGEST_HEADER = 256
# The executor replaces the lease file by renaming; a plain writer may leave it empty briefly.
LEASE_FILE_PATIENCE_S = 1.0


class StaleLeaseError(Exception):
    """A newer lease runs this job, so this process must not write any more."""


class Checkpoint(NamedTuple):
    """Orders as (lease, sequence): the later lease wins whatever the sequences."""

    lease: int
    sequence: int
    body: bytes


class Fence:
    """The file `lease` in the job's folder names the lease that may write."""

    def __init__(self, folder: Path, lease: int) -> None:
        self._file = folder / "lease"
        self._lease = lease

    def check(self) -> None:
        """Raises StaleLeaseError if a newer lease stands there, or if nothing can be read there.

        A missing file is no newer lease: outside the portal nobody writes one.
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
    """The checkpoints of one job, as one lease of it may write them."""

    def __init__(self, path: Path, lease: int, fence: Fence) -> None:
        self.path = path
        self._lease = lease
        self._fence = fence
        self._last = 0

    @property
    def last_name(self) -> str:
        """The name of the file that was written last."""
        return name_of(self._lease, self._last)

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint; torn ones are passed over.

        Also makes the folder, removes what a killed writer left half done, and goes on
        from the highest number that this lease has used.
        """
        self._fence.check()
        self.path.mkdir(parents=True, exist_ok=True)
        for left in self.path.iterdir():
            if UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)
        names = self._names()
        self._last = max((sequence for lease, sequence in names if lease == self._lease), default=0)
        for lease, sequence in names:
            checkpoint = read_file(self.path / name_of(lease, sequence))
            if checkpoint and (checkpoint.lease, checkpoint.sequence) == (lease, sequence):
                return checkpoint
        return None

    def write(self, body: bytes) -> Path:
        """Put a checkpoint on the disk; returns when it would survive a loss of power.

        Raises StaleLeaseError, before and after the slow part, and OSError (disk full).
        """
        self._fence.check()
        self._last += 1
        target = self.path / name_of(self._lease, self._last)
        beside = self.path / f".{target.name}.{os.getpid()}"
        try:
            with beside.open("wb") as file:
                write_file(file, Checkpoint(self._lease, self._last, body))
            self._fence.check()
            beside.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        flush_folder(self.path)
        self._prune()
        return target

    def _prune(self) -> None:
        """By (lease, sequence), so that a stale writer cannot push out a newer lease's files."""
        for lease, sequence in self._names()[KEEP:]:
            with contextlib.suppress(OSError):
                (self.path / name_of(lease, sequence)).unlink()

    def _names(self) -> list[tuple[int, int]]:
        matches = (NAME.fullmatch(path.name) for path in self.path.iterdir())
        return sorted(((int(m[1]), int(m[2])) for m in matches if m), reverse=True)


def name_of(lease: int, sequence: int) -> str:
    return f"{lease:06d}-{sequence:08d}.ckpt"


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
    """The checkpoint in a file, or None if the file is torn or cannot be read."""
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
    # Two updates: a body of gigabytes is not copied to put the line before it.
    digest = hashlib.sha256(start + b"\n")
    digest.update(body)
    return digest.hexdigest().encode()
