"""Which processes were started anew and why: one file in the run folder, for pages and metrics.

Standard library only: the supervisor writes it, and `deploy/healthcheck.py` in a container.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

FILE = "restarts"


@dataclass(frozen=True)
class Restarts:
    """Of one process: how often it was started anew, the last reason, and when (wall seconds)."""

    name: str
    count: int
    why: str
    at: float
    # How long it may be silent before it is started anew again, in seconds.
    next_after_s: float = 0.0


def read_restarts(run: Path) -> list[Restarts]:
    """Return what is noted of each process, by name; nothing if it cannot be read."""
    try:
        rows = json.loads((run / FILE).read_text())
        return sorted((Restarts(**row) for row in rows), key=lambda row: row.name)
    except (OSError, ValueError, TypeError):
        return []


def note_restart(run: Path, name: str, why: str, *, at: float, next_after_s: float = 0.0) -> None:
    """Note that a process is started anew; on a full disk it is not noted."""
    rows = {row.name: row for row in read_restarts(run)}
    before = rows.get(name, Restarts(name, 0, "", 0.0))
    rows[name] = replace(before, count=before.count + 1, why=why, at=at, next_after_s=next_after_s)
    # Containers share the folder.
    fresh = run / f"{FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps([asdict(row) for row in rows.values()]))
        fresh.replace(run / FILE)
