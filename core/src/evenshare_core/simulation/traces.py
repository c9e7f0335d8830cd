"""Real traces as files of the repository, read into plain values."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. `submit_s` counts from the slice's start; 0 is the backlog.

    `profile` names its job type, whose slowest GPU type `duration_s` is told for; empty: none.
    """

    trace_id: int
    tenant: str
    submit_s: int
    duration_s: int
    gpus: int
    profile: str = ""


@lru_cache(maxsize=4)
def read_trace(name: str) -> tuple[TraceJob, ...]:
    """Return the jobs of a bundled trace in order of (submission, id).

    Raises:
        FileNotFoundError: no trace of this name is bundled.
    """
    return tuple(sorted(_rows(DATA / f"{name}.csv.gz"), key=lambda j: (j.submit_s, j.trace_id)))


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
            )
