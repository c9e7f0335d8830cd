"""What the ranks of a gang tell each other: a small file of each, replaced as it changes.

    ranks/000003-0-0/00001.json          lease 3, no restart by torchrun, first start; rank 1

A rank writes its own file only, so nobody overwrites what another said, and a process of an older
lease speaks where nobody listens. All read rank 0's file, and rank 0 reads all: with many ranks
the folder is read in proportion to their number, not to its square.
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
    """The files of one start of a gang, as one rank writes and reads them."""

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
        """Take the folder of this start: the first in which this rank has not spoken yet.

        A program may begin anew under its lease (one that prepares, another that trains): all
        ranks do so equally often, and find each other in the same folder again.
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
        """Tell the others; what was said before stands.

        A file system in the network shows what is new in a folder to those who write there: so
        whoever waits for others says again what it has said. Nothing is flushed to the disk: with
        the machine the process is gone, too.
        """
        target = self._file(self._rank)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        # A full disk ends nothing here: who waits says it again.
        with self._speaking, contextlib.suppress(OSError):
            self._facts.update(facts)
            beside.write_text(json.dumps(self._facts), "ascii")
            beside.replace(target)

    def hear(self, rank: int) -> dict[str, Any]:
        """What a rank said last; nothing where it has not spoken."""
        if rank == self._rank:
            return self._facts
        try:
            facts = json.loads(self._file(rank).read_text("ascii"))
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def hear_all(self) -> list[dict[str, Any]]:
        """What each said, by rank."""
        return [self.hear(rank) for rank in range(self._size)]

    def _file(self, rank: int) -> Path:
        return self._folder / f"{rank:05d}.json"

    def _clear_older(self) -> None:
        with contextlib.suppress(OSError):
            for path in list(self._root.iterdir()):
                lease = path.name.partition("-")[0]
                if lease.isdecimal() and int(lease) < self._lease:
                    shutil.rmtree(path, ignore_errors=True)
