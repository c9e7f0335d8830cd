"""The evaluations file: what a job's stopping metric was, after how many iterations.

    {"version": 1, "lease": 3, "metric": "accuracy", "points": [[500, 0.41], [1000, 0.52]]}

The metric is the one of the job's criterion; of a job without one nothing is written. At most 200
evaluations of this process: of each stretch of iterations the first one, the newest, and the first
that met the criterion, as `evenshare_core.estimation.evaluations` keeps them. Replaced as a whole,
never half written.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import NamedTuple

VERSION = 1
MOST = 200
# Thinned when there are so many, and before each writing.
ROOM = 1000


class Criterion(NamedTuple):
    """The metric that says when the job is done; `at_least` or else at most the value."""

    metric: str
    at_least: bool
    value: float

    def is_met(self, metric: float) -> bool:
        """Whether such an evaluation ends the job."""
        return metric >= self.value if self.at_least else metric <= self.value


class EvaluationLog:
    """The evaluations of this process; one thread at a time adds to them."""

    def __init__(self, file: Path, lease: int, criterion: Criterion) -> None:
        self.criterion = criterion
        self._file = file
        self._lease = lease
        self._points: list[tuple[int, float]] = []
        self._written: tuple[int, float] | None = None

    def add(self, iteration: int, metric: float) -> None:
        """The metric after so many iterations; one that is not after the last is left out."""
        if iteration < 1 or (self._points and iteration <= self._points[-1][0]):
            return
        points = [*self._points, (iteration, metric)]
        # Replaced as a whole, so that another thread writes one moment.
        self._points = points if len(points) < ROOM else thinned(points, self.criterion)

    @property
    def is_met(self) -> bool:
        """Whether the newest evaluation meets the criterion."""
        return bool(self._points) and self.criterion.is_met(self._points[-1][1])

    @property
    def waits(self) -> bool:
        return bool(self._points) and self._points[-1] != self._written

    def write(self) -> None:
        """Not flushed to the disk: what is lost with the machine is evaluated again."""
        points = self._points
        if not points or points[-1] == self._written:
            return
        report = {
            "version": VERSION,
            "lease": self._lease,
            "metric": self.criterion.metric,
            "points": thinned(points, self.criterion),
        }
        own = f".{self._file.name}.{os.getpid()}-{threading.get_ident()}"
        beside = self._file.with_name(own)
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(report, allow_nan=False), "ascii")
            beside.replace(self._file)
        self._written = points[-1]


def thinned(points: list[tuple[int, float]], criterion: Criterion) -> list[tuple[int, float]]:
    """At most MOST of ascending points: the first of each stretch, the newest, the first that met.

    A stretch is as wide as the least power of two with which they fit.
    """
    width = 1
    while points[-1][0] // width + 1 > MOST - 2:
        width *= 2
    kept: dict[int, tuple[int, float]] = {}
    for point in points:
        kept.setdefault(point[0] // width, point)
    met = [point for point in points if criterion.is_met(point[1])][:1]
    return sorted({*kept.values(), points[-1], *met})
