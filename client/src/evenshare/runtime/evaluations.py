"""The evaluations file: values of a job's stopping metric, and their iterations.

    {"version": 1, "lease": 3, "metric": "accuracy", "points": [[500, 0.41], [1000, 0.52]]}

Only the metric of the job's criterion is written; without a criterion there is no file. It has
at most 200 evaluations of this process, as in `evenshare_core.estimation.evaluations`. They are the
first of each interval of iterations, the newest, and the first that met the criterion. The file is
replaced atomically.
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
# The points are thinned when they reach this number, and before each write.
ROOM = 1000


class Criterion(NamedTuple):
    """The criterion that ends the job: a metric of at least (`at_least`) or at most `value`."""

    metric: str
    at_least: bool
    value: float

    def is_met(self, metric: float) -> bool:
        """Return whether an evaluation with this value ends the job."""
        return metric >= self.value if self.at_least else metric <= self.value


class EvaluationLog:
    """The evaluations of this process; only one thread at a time adds to them."""

    def __init__(self, file: Path, lease: int, criterion: Criterion) -> None:
        self.criterion = criterion
        self._file = file
        self._lease = lease
        self._points: list[tuple[int, float]] = []
        self._written: tuple[int, float] | None = None

    def add(self, iteration: int, metric: float) -> None:
        """Add the metric's value after `iteration` iterations, if later than the last point."""
        if iteration < 1 or (self._points and iteration <= self._points[-1][0]):
            return
        points = [*self._points, (iteration, metric)]
        # Replaced as a whole, so that the thread that writes sees a consistent state.
        self._points = points if len(points) < ROOM else thinned(points, self.criterion)

    @property
    def is_met(self) -> bool:
        """Return whether the newest evaluation meets the criterion."""
        return bool(self._points) and self.criterion.is_met(self._points[-1][1])

    @property
    def waits(self) -> bool:
        return bool(self._points) and self._points[-1] != self._written

    def write(self) -> None:
        """Write the file without a flush to disk: a restarted program repeats lost evaluations."""
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
    """Return at most MOST of ascending points.

    Kept are the first of each interval, the newest, and the first that met the criterion. The
    interval is the smallest power of two at which they fit.
    """
    width = 1
    while points[-1][0] // width + 1 > MOST - 2:
        width *= 2
    kept: dict[int, tuple[int, float]] = {}
    for point in points:
        kept.setdefault(point[0] // width, point)
    met = [point for point in points if criterion.is_met(point[1])][:1]
    return sorted({*kept.values(), points[-1], *met})
