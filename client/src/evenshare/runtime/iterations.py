"""The iterations file: how long they take, for the measured speeds of the job's type.

    {"version": 1, "lease": 3, "iterations": 120, "time_us": 30210000, "first_us": 1767225600000000,
     "suspended_us": null, "memory_bytes": 0}

Sums since the start of the process, so that a report that nobody reads is part of the next one.
`first_us` is the wall time at the end of the first iteration, since 1970: that one is left out of
the sums, for it prepares what the others use. Replaced as a whole, never half written.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

VERSION = 1


class IterationSums(NamedTuple):
    """What is known so far; replaced as a whole, so that another thread reads one moment."""

    iterations: int = 0
    time_us: int = 0
    first_us: int | None = None
    suspended_us: int | None = None
    memory_bytes: int = 0


class IterationLog:
    """Counts the iterations of this process; one thread at a time adds to them."""

    def __init__(self, file: Path, lease: int) -> None:
        self._file = file
        self._lease = lease
        self._sums = IterationSums()
        self._written = IterationSums()
        self._last_ns: int | None = None

    def add(self, count: int) -> None:
        """`count` iterations are over: what passed since the last call is their time."""
        now_ns = time.monotonic_ns()
        if self._last_ns is None:
            self._sums = self._sums._replace(first_us=time.time_ns() // 1000)
        else:
            # Each call rounds its own part down: sums never tell of more time than there was.
            self._sums = self._sums._replace(
                iterations=self._sums.iterations + count,
                time_us=self._sums.time_us + max(1, (now_ns - self._last_ns) // 1000),
            )
        self._last_ns = now_ns

    def used(self, memory_bytes: int) -> None:
        """So much GPU memory was used on one GPU; the most counts."""
        self._sums = self._sums._replace(
            memory_bytes=max(self._sums.memory_bytes, int(memory_bytes))
        )

    def suspended(self, seconds: float) -> None:
        """It took so long from the checkpoint signal until all was written."""
        self._sums = self._sums._replace(suspended_us=max(0, int(seconds * 1e6)))

    @property
    def waits(self) -> bool:
        return self._sums is not self._written

    def write(self) -> None:
        """Not flushed to the disk: a report lost with the machine costs nobody anything."""
        sums = self._sums
        if sums is self._written:
            return
        report = {"version": VERSION, "lease": self._lease, **sums._asdict()}
        # Two threads may write at once; each has a file of its own until it is whole.
        own = f".{self._file.name}.{os.getpid()}-{threading.get_ident()}"
        beside = self._file.with_name(own)
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(report), "ascii")
            beside.replace(self._file)
        self._written = sums
