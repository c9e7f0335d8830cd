"""Traces that come with the portal, read into plain values; `settings.BUNDLED_TRACES` has them."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from evenshare_core.simulation.trace_fields import OPTIONAL_READERS


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. `submit_s` counts from the slice's start; 0 is the backlog.

    `profile` names its job type, whose slowest GPU type `duration_s` is told for; empty: none.
    `utility` is what its completion is worth, as a text (`evenshare_core.domain.utilities`); such a
    job says how long it takes. `estimate_s`: what it says instead; 0: nothing else. `deadlines`:
    microseconds after the submission, and what it is worth until then. `stop_when` is the metric by
    which it ends, as a request says it, after `iterations` at most; such a job does not know how
    long it takes.
    """

    trace_id: int
    tenant: str
    submit_s: int
    duration_s: int
    gpus: int
    profile: str = ""
    utility: str = ""
    estimate_s: int = 0
    deadlines: tuple[tuple[int, int], ...] = ()
    iterations: int = 0
    stop_when: str = ""


@lru_cache(maxsize=4)
def read_trace(name: str) -> tuple[TraceJob, ...]:
    """Return the jobs of a bundled trace in order of (submission, id).

    Raises:
        FileNotFoundError: no trace of this name is bundled.
    """
    jobs = _rows(settings.BUNDLED_TRACES / f"{name}.csv.gz")
    return tuple(sorted(jobs, key=lambda job: (job.submit_s, job.trace_id)))


def _rows(path: Path) -> Iterator[TraceJob]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield TraceJob(
                int(row["trace_id"]),
                row["tenant"],
                int(row["submit_s"]),
                int(row["duration_s"]),
                int(row["gpus"]),
                row.get("profile", ""),
                row.get("utility", ""),
                int(row.get("estimate_s") or 0),
                _deadlines(row),
                int(row.get("iterations") or 0),
                row.get("stop_when", ""),
            )


def _deadlines(row: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Deadlines and values, as traces that are imported write them."""
    if not row.get("deadline_s"):
        return ()
    deadlines: Any = OPTIONAL_READERS["deadline_s"](row["deadline_s"], "deadline_s")
    values: Any = OPTIONAL_READERS["values"](row["values"], "values")
    return tuple(zip(deadlines, values, strict=True))
