"""A worker's heartbeat: in which phase it is, since when, and whether messages wait for it.

The main process of a worker writes it every `pulse.PULSE_EVERY_S` from a thread of its own, from
the moment it is ready. Instants are of the monotonic clock, which all processes of a machine share:
a wall clock that jumps makes nobody silent. The supervisor and `deploy/healthcheck.py` judge it by
`complaint`. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# A task that computes for so long does not end: a round has lost its fence many times over.
LONGEST_S = 900.0
# What is said goes with a sign of life, or it is older than that: a full disk keeps it from being
# written.
STALE_S = 10.0


@dataclass(frozen=True)
class Heartbeat:
    """How a worker is at the instant `at`: idle if `task` is empty, else on that since `since`.

    `waits_since`: since when its queue has held a message of which it took none, though idle.
    """

    at: float
    task: str = ""
    since: float = 0.0
    waits_since: float | None = None


class HeartbeatMaker:
    """Makes a worker's `Heartbeat` from what it looks at in each beat."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._taken = 0
        self._waits_since: float | None = None

    def look(
        self, now: float, *, tasks: Mapping[str, str], taken: int, waiting: int | None
    ) -> Heartbeat:
        """Say how it is: `tasks` that run, names by id; messages `taken` so far, and `waiting`.

        A broker that does not answer (`waiting` None) is no reason to blame the worker.
        """
        self._begun = {key: self._begun.get(key, now) for key in tasks}
        if tasks or taken != self._taken or not waiting:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        self._taken = taken
        if not tasks:
            return Heartbeat(now, waits_since=self._waits_since)
        oldest = min(self._begun, key=self._begun.__getitem__)
        return Heartbeat(now, tasks[oldest], self._begun[oldest])


def complaint(
    heartbeat: Heartbeat | None, now: float, *, progress_at: float, patience_s: float
) -> str:
    """Return why a worker that gives signs of life has to start anew, or an empty text.

    `progress_at`: when its task last used the processor, or a task began or ended.
    """
    if heartbeat is None or now - heartbeat.at > STALE_S:
        return ""
    if heartbeat.task:
        stood_s = now - max(progress_at, heartbeat.since)
        if stood_s > patience_s:
            return f"its task {heartbeat.task} has stood still for {stood_s:.0f} s"
        ran_s = now - heartbeat.since
        # The worker itself ends a task at its bound, and says so.
        if ran_s > LONGEST_S + patience_s:
            return f"its task {heartbeat.task} has run for {ran_s:.0f} s"
    elif heartbeat.waits_since is not None and now - heartbeat.waits_since > patience_s:
        return f"it is idle and has taken no message for {now - heartbeat.waits_since:.0f} s"
    return ""


def touch(run: Path, name: str) -> None:
    """Give a sign of life: the file's time is the monotonic clock's. It needs no disk space."""
    file = run / name
    now_ns = time.monotonic_ns()
    try:
        os.utime(file, ns=(now_ns, now_ns))
    except FileNotFoundError:
        file.touch()
        os.utime(file, ns=(now_ns, now_ns))


def touched_at(run: Path, name: str) -> float | None:
    """Return when the last sign of life came, on the monotonic clock; None if none ever did."""
    try:
        return (run / name).stat().st_mtime
    except OSError:
        return None


def write_heartbeat(run: Path, queue: str, heartbeat: Heartbeat) -> None:
    """Write what a worker says; on a full disk only its sign of life."""
    name = f"heartbeat-{queue}"
    fresh = run / f"{name}.new"
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(asdict(heartbeat)))
        fresh.replace(run / name)
    with contextlib.suppress(OSError):
        touch(run, name)


def read_heartbeat(run: Path, queue: str) -> Heartbeat | None:
    """Return what the worker of a queue said last, or None if that cannot be read."""
    try:
        return Heartbeat(**json.loads((run / f"heartbeat-{queue}").read_text()))
    except (OSError, ValueError, TypeError):
        return None
