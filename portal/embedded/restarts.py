"""Restarts of processes and their reasons: one file in the run folder, for pages and metrics.

Standard library only: the supervisor writes it, and `deploy/healthcheck.py` in a container.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

FILE = "restarts"


@dataclass(frozen=True)
class Restarts:
    """A process's number of restarts, the last reason, and its time (wall seconds)."""

    name: str
    count: int
    why: str
    at: float
    # Seconds of silence after which the process restarts again.
    next_after_s: float = 0.0


def read_restarts(run: Path) -> list[Restarts]:
    """Return the restarts by process name; empty if the file is unreadable."""
    try:
        rows = json.loads((run / FILE).read_text())
        return sorted((Restarts(**row) for row in rows), key=lambda row: row.name)
    except (OSError, ValueError, TypeError):
        return []


def note_restart(run: Path, name: str, why: str, *, at: float, next_after_s: float = 0.0) -> None:
    """Store a restart of a process; skipped on a full disk."""
    rows = {row.name: row for row in read_restarts(run)}
    before = rows.get(name, Restarts(name, 0, "", 0.0))
    rows[name] = replace(before, count=before.count + 1, why=why, at=at, next_after_s=next_after_s)
    # Several containers may share the folder, so each process writes its own temporary file.
    fresh = run / f"{FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps([asdict(row) for row in rows.values()]))
        fresh.replace(run / FILE)
