"""The iterations file: number and times of iterations, from which the job type's speed is measured.

    {"version": 1, "lease": 3, "iterations": 120, "time_us": 30210000, "first_us": 1767225600000000,
     "suspended_us": null, "memory_bytes": 0}

The sums start with the process, so an unread report is included in the next one. `first_us` is
the wall time at the end of the first iteration, since 1970. The sums exclude this iteration,
because it includes preparation. The file is replaced atomically.
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
    """The present sums.

    They are replaced as a whole, so that another thread reads a consistent state.
    """

    iterations: int = 0
    time_us: int = 0
    first_us: int | None = None
    suspended_us: int | None = None
    memory_bytes: int = 0


class IterationLog:
    """Counts the iterations of this process; only one thread at a time adds to them."""

    def __init__(self, file: Path, lease: int) -> None:
        self._file = file
        self._lease = lease
        self._sums = IterationSums()
        self._written = IterationSums()
        self._last_ns: int | None = None

    def add(self, count: int) -> None:
        """Add `count` iterations, which took the time since the last call."""
        now_ns = time.monotonic_ns()
        if self._last_ns is None:
            self._sums = self._sums._replace(first_us=time.time_ns() // 1000)
        else:
            # Each call rounds down, so the sums never exceed the real time.
            self._sums = self._sums._replace(
                iterations=self._sums.iterations + count,
                time_us=self._sums.time_us + max(1, (now_ns - self._last_ns) // 1000),
            )
        self._last_ns = now_ns

    def used(self, memory_bytes: int) -> None:
        """Record the memory used on one GPU, in bytes; the maximum is kept."""
        self._sums = self._sums._replace(
            memory_bytes=max(self._sums.memory_bytes, int(memory_bytes))
        )

    def suspended(self, seconds: float) -> None:
        """Record the seconds from the checkpoint signal until everything was written."""
        self._sums = self._sums._replace(suspended_us=max(0, int(seconds * 1e6)))

    @property
    def waits(self) -> bool:
        return self._sums is not self._written

    def write(self) -> None:
        """Write the file without a flush to disk: a report lost with the machine is harmless."""
        sums = self._sums
        if sums is self._written:
            return
        report = {"version": VERSION, "lease": self._lease, **sums._asdict()}
        # Two threads may write at once; each has its own temporary file.
        own = f".{self._file.name}.{os.getpid()}-{threading.get_ident()}"
        beside = self._file.with_name(own)
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(report), "ascii")
            beside.replace(self._file)
        self._written = sums
