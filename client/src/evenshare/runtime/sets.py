"""The checkpoints in a job's folder: files of one process, and sets with a part per rank.

    000003-00000012.ckpt                                     of a job of one process
    000003-00000012.5f0c9e12aa01b3d4.00001-of-00004.part     of rank 1 of 4

A set is complete when the parts of all its ranks exist: same lease, same sequence, same run. No
other record marks it as complete, so none can be torn or missing. The run identifies the processes
that started together (`board`): parts of other processes never complete their set.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

KEEP = 2
CHECKPOINT = re.compile(r"(\d{6,})-(\d{8,})\.ckpt")
PART = re.compile(r"(\d{6,})-(\d{8,})\.([0-9a-f]{16})\.(\d{5,})-of-(\d{5,})\.part")
UNFINISHED = re.compile(r"\.\d{6,}-\d{8,}\.(?:[0-9a-f]{16}\.\d+-of-\d+\.part|ckpt)\.\d+")


class CheckpointSet(NamedTuple):
    """A set's name, ordered by (lease, sequence): that of a later lease is newer.

    `run` is empty if one process wrote it, as a single file.
    """

    lease: int
    sequence: int
    run: str
    size: int

    def file(self, rank: int) -> str:
        if not self.run:
            return name_of(self.lease, self.sequence)
        start = f"{self.lease:06d}-{self.sequence:08d}.{self.run}"
        return f"{start}.{rank:05d}-of-{self.size:05d}.part"

    @property
    def files(self) -> list[str]:
        return [self.file(rank) for rank in range(self.size)]


def name_of(lease: int, sequence: int) -> str:
    """Return the name of the checkpoint of a single process."""
    return f"{lease:06d}-{sequence:08d}.ckpt"


def set_of(name: str) -> CheckpointSet | None:
    """Return the set that a file of this name belongs to, or None."""
    if match := CHECKPOINT.fullmatch(name):
        return CheckpointSet(int(match[1]), int(match[2]), "", 1)
    if match := PART.fullmatch(name):
        return CheckpointSet(int(match[1]), int(match[2]), match[3], int(match[5]))
    return None


def complete_sets(folder: Path) -> list[CheckpointSet]:
    """Return the sets that have all their files, newest first. The contents are not read."""
    counts: dict[CheckpointSet, int] = {}
    for path in folder.iterdir():
        one = set_of(path.name)
        # The exact name is compared, so that no rank counts twice.
        if (
            one is not None
            and path.name == one.file(rank := rank_of(path.name))
            and rank < one.size
        ):
            counts[one] = counts.get(one, 0) + 1
    return sorted((one for one, count in counts.items() if count == one.size), reverse=True)


def highest_sequence(folder: Path, lease: int) -> int:
    """Return the highest number that a lease has used, even in an incomplete set; 0 if none."""
    sets = (set_of(path.name) for path in folder.iterdir())
    return max((one.sequence for one in sets if one and one.lease == lease), default=0)


def prune(folder: Path) -> None:
    """Remove files older than the last KEEP complete sets.

    Sets are ordered by (lease, sequence), so a stale process cannot remove a newer lease's files.
    """
    kept = complete_sets(folder)[:KEEP]
    if len(kept) < KEEP:
        return
    for path in list(folder.iterdir()):
        one = set_of(path.name)
        if one is not None and one[:2] < kept[-1][:2]:
            with contextlib.suppress(OSError):
                path.unlink()


def clear_unfinished(folder: Path) -> None:
    """Remove partial files of killed writers."""
    for path in list(folder.iterdir()):
        if UNFINISHED.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def rank_of(name: str) -> int:
    """Return the rank of a file; 0 for a single process."""
    match = PART.fullmatch(name)
    return int(match[4]) if match else 0
