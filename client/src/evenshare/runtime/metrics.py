"""The metrics file: the curves of a job's metrics over all its leases, and its links.

    {"version": 1, "thinned": false, "series": {"loss": [[100, 0.31, 1767225600000]]},
     "links": {"W&B": "https://wandb.ai/vision/runs/3"}}

A point is [step, value, time]; the time is in milliseconds since 1970. Steps increase. Each process
continues the file of the one before it: where it repeats steps, its points replace the older ones.
A metric has at most 1,000 points, and all metrics together 16,000; a full metric keeps the first
point of each interval of steps, and the newest. The file is replaced atomically.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .progress import finite

VERSION = 1
MOST_BYTES = 2**20
MOST_METRICS, MOST_POINTS, MOST_OF_ONE = 64, 16_000, 1000
MOST_LINKS, LONGEST_NAME, LONGEST_LINK = 8, 64, 500
STEP_END = 2**53
# The share of the time that writing the file may take.
SHARE = 0.01

Point = tuple[int, float, int]

_UNUSABLE = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError),
)
_OTHER = re.compile(r"[^A-Za-z0-9_./@-]")
_LINK = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?([/?#][!-~]*)?")


class MetricLog:
    """The metrics of this job; only one thread at a time adds to them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._series: dict[str, list[Point]] = {}
        self._links: dict[str, str] = {}
        self._is_thinned = False
        # Metrics of this process, whose points replace those of an earlier one.
        self._own: set[str] = set()
        self._is_read = self._waits = False
        self._free_at = 0.0
        self._changing = threading.Lock()

    def add(self, step: int | None, values: Mapping[str, object]) -> None:
        """Add values after `step` steps; if it is None, one step after the metric's last point.

        Left out are values that are not finite, and metrics after the first 64.
        """
        at_ms = time.time_ns() // 1_000_000
        with self._changing:
            self._read()
            for name, value in finite(values).items():
                slug = _OTHER.sub("_", name)[:LONGEST_NAME]
                if slug and (slug in self._series or len(self._series) < MOST_METRICS):
                    self._add(slug, step, float(f"{value:.9g}"), at_ms)

    def _add(self, name: str, step: int | None, value: float, at_ms: int) -> None:
        points = self._series.setdefault(name, [])
        last = points[-1][0] if points else 0
        step = last + 1 if step is None else step
        if not 0 <= step < STEP_END:
            return
        if step <= last and points:
            if name in self._own and step < last:
                return
            points[:] = [point for point in points if point[0] < step]
        self._own.add(name)
        points.append((step, value, at_ms))
        self._waits = True
        most = min(MOST_OF_ONE, MOST_POINTS // len(self._series))
        if len(points) > most:
            points[:] = thinned(points, most // 2)
            self._is_thinned = True

    def link(self, name: str, url: str) -> None:
        """Show a link; an address that is not https is left out, and so are links after 8."""
        with self._changing:
            self._read()
            if len(url) > LONGEST_LINK or not _LINK.fullmatch(url) or not name.isprintable():
                return
            if name in self._links or len(self._links) < MOST_LINKS:
                self._links[name[:LONGEST_NAME]] = url
                self._waits = True

    @property
    def waits(self) -> bool:
        """Return whether the file is to be written now: large files are written less often."""
        return self._waits and time.monotonic() >= self._free_at

    def write(self) -> None:
        """Write the file without a flush to disk, if a value was added since."""
        if not self._waits:
            return
        begun = time.monotonic()
        with self._changing:
            self._waits = False
            report = {
                "version": VERSION,
                "thinned": self._is_thinned,
                "series": self._series,
                "links": self._links,
            }
            text = json.dumps(report, allow_nan=False, separators=(",", ":"))
        own = f".{self._file.name}.{os.getpid()}-{threading.get_ident()}"
        beside = self._file.with_name(own)
        with contextlib.suppress(OSError):
            beside.write_text(text, "ascii")
            beside.replace(self._file)
        now = time.monotonic()
        self._free_at = now + (now - begun) / SHARE

    def _read(self) -> None:
        """Continue an earlier process's file; an unusable one is ignored."""
        if self._is_read:
            return
        self._is_read = True
        with contextlib.suppress(*_UNUSABLE):
            with self._file.open("rb") as file:
                said = json.loads(file.read(MOST_BYTES + 1))
            series = {
                str(name): sorted(_point(*point) for point in points)
                for name, points in list(said["series"].items())[:MOST_METRICS]
            }
            self._links = {str(name): str(url) for name, url in said.get("links", {}).items()}
            self._is_thinned = bool(said.get("thinned"))
            self._series = series


def _point(step: Any, value: Any, at_ms: Any = 0) -> Point:
    if not math.isfinite(value):
        raise ValueError
    return int(step), float(value), int(at_ms)


def thinned(points: list[Point], most: int) -> list[Point]:
    """Return at most `most` of ascending points: the first of each interval, and the newest.

    The interval is the smallest power of two at which they fit.
    """
    begin, width = points[0][0], 1
    while (points[-1][0] - begin) // width + 1 > most - 1:
        width *= 2
    kept: dict[int, Point] = {}
    for point in points:
        kept.setdefault((point[0] - begin) // width, point)
    return sorted({*kept.values(), points[-1]})
