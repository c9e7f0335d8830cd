"""Messages between the ranks of a gang: a small file per rank, replaced when it changes.

    ranks/000003-0-0/00001.json          lease 3, no restart by torchrun, first start; rank 1

A rank writes only its own file, so ranks do not overwrite each other. A process of an older lease
writes to another folder, which is not read. All ranks read rank 0's file, and rank 0 reads all: the
reads are proportional to the number of ranks, not to its square.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import threading
from pathlib import Path
from typing import Any


class RankBoard:
    """The message files of one start of a gang, as one rank uses them."""

    def __init__(self, folder: Path, lease: int, restart: int, rank: int, size: int) -> None:
        self._root = folder
        self._lease = lease
        self._restart = restart
        self._rank = rank
        self._size = size
        self._folder = folder
        self._facts: dict[str, Any] = {}
        self._speaking = threading.Lock()
        self.nonce = secrets.token_hex(8)

    def open(self) -> None:
        """Use the folder of this start: the first in which this rank has no file yet.

        A program may start several times under its lease (one that prepares, another that trains).
        All ranks do so equally often, so they find each other in the same folder.
        """
        if self._rank == 0:
            self._clear_older()
        for start in itertools.count():
            self._folder = self._root / f"{self._lease:06d}-{self._restart}-{start}"
            if not self._file(self._rank).exists():
                break
        self._folder.mkdir(parents=True, exist_ok=True)
        self._facts["nonce"] = self.nonce

    def say(self, **facts: Any) -> None:
        """Add facts to this rank's file; earlier ones stay.

        A network file system shows new files in a folder only to processes that write there. So a
        waiting rank writes its facts repeatedly. Nothing is flushed to disk: if the machine fails,
        so does the process.
        """
        target = self._file(self._rank)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        # Ignore a full disk: a waiting rank writes again.
        with self._speaking, contextlib.suppress(OSError):
            self._facts.update(facts)
            beside.write_text(json.dumps(self._facts), "ascii")
            beside.replace(target)

    def hear(self, rank: int) -> dict[str, Any]:
        """Return a rank's last facts; empty if it has none."""
        if rank == self._rank:
            return self._facts
        try:
            facts = json.loads(self._file(rank).read_text("ascii"))
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def hear_all(self) -> list[dict[str, Any]]:
        """Return the facts of each rank, by rank."""
        return [self.hear(rank) for rank in range(self._size)]

    def _file(self, rank: int) -> Path:
        return self._folder / f"{rank:05d}.json"

    def _clear_older(self) -> None:
        with contextlib.suppress(OSError):
            for path in list(self._root.iterdir()):
                lease = path.name.partition("-")[0]
                if lease.isdecimal() and int(lease) < self._lease:
                    shutil.rmtree(path, ignore_errors=True)
