"""Traces that come with the portal, read into plain values; `settings.BUNDLED_TRACES` has them."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. `submit_s` counts from the slice's start; 0 is the backlog.

    `profile` names its job type, whose slowest GPU type `duration_s` is told for; empty: none.
    `utility` is what its completion is worth, as a text (`evenshare_core.domain.utilities`); such a
    job says how long it takes.
    """

    trace_id: int
    tenant: str
    submit_s: int
    duration_s: int
    gpus: int
    profile: str = ""
    utility: str = ""


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
            )
