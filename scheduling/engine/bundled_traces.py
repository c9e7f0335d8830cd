"""Traces that are shipped with the portal in `settings.BUNDLED_TRACES`, read into plain values."""

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
    """A job of a trace.

    `submit_s`: the submission in seconds after the trace's start; 0 if the job waits from the
    start.

    `profile` names its job type, or is empty. `duration_s` is the duration on the job type's
    slowest GPU type. `estimate_s` is the declared duration if it differs from `duration_s`, else 0.
    `utility` is the value of the job's completion as text (`evenshare_core.domain.utilities`); a
    job with a utility declares its duration. `deadlines`: pairs of a time in microseconds after the
    submission, and the job's value if it ends by then. `stop_when`: the stopping metric, in the
    format of the API; the job ends after `iterations` at the latest. A job with a metric declares
    no duration.
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
    """Return (deadline, value) pairs in the format of imported traces."""
    if not row.get("deadline_s"):
        return ()
    deadlines: Any = OPTIONAL_READERS["deadline_s"](row["deadline_s"], "deadline_s")
    values: Any = OPTIONAL_READERS["values"](row["values"], "values")
    return tuple(zip(deadlines, values, strict=True))
