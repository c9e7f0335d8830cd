"""A worker's heartbeat: its task, the task's start, and whether messages wait for the worker.

The main process of a worker writes it every `pulse.PULSE_EVERY_S` from its own thread, once it is
ready. Instants are of the monotonic clock, which all processes of a machine share. So a jump of the
wall clock makes no worker look silent. The supervisor and `deploy/healthcheck.py` judge it by
`complaint`. Standard library only.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# A task that runs this long will not end: a round would have lost its fence long ago.
LONGEST_S = 900.0
# An older heartbeat is ignored, because on a full disk only the time of the last sign is updated.
STALE_S = 10.0


@dataclass(frozen=True)
class Heartbeat:
    """A worker's state at `at`: idle if `task` is empty, else busy with `task` since `since`.

    `waits_since`: since when the worker has been idle although its queue holds messages.
    """

    at: float
    task: str = ""
    since: float = 0.0
    waits_since: float | None = None


class HeartbeatMaker:
    """Builds a worker's `Heartbeat` from the state at each beat."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._taken = 0
        self._waits_since: float | None = None

    def look(
        self, now: float, *, tasks: Mapping[str, str], taken: int, waiting: int | None
    ) -> Heartbeat:
        """Return the heartbeat from running `tasks` (id -> name) and messages `taken`, `waiting`.

        If the broker does not answer (`waiting` is None), the worker is not blamed.
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
    """Return why a worker with signs of life must restart, or an empty text.

    `progress_at`: when its task last used the processor, or a task started or ended.
    """
    if heartbeat is None or now - heartbeat.at > STALE_S:
        return ""
    if heartbeat.task:
        stood_s = now - max(progress_at, heartbeat.since)
        if stood_s > patience_s:
            return f"its task {heartbeat.task} has been idle for {stood_s:.0f} s"
        ran_s = now - heartbeat.since
        # The worker itself ends a task at the limit and reports it.
        if ran_s > LONGEST_S + patience_s:
            return f"its task {heartbeat.task} has run for {ran_s:.0f} s"
    elif heartbeat.waits_since is not None and now - heartbeat.waits_since > patience_s:
        return f"it has received no message for {now - heartbeat.waits_since:.0f} s"
    return ""


def touch(run: Path, name: str) -> None:
    """Give a sign of life: set the file's time to the monotonic clock. It needs no disk space."""
    now_ns = time.monotonic_ns()
    # By a descriptor: the file may be removed between its creation and the change of its time.
    file = os.open(run / name, os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        os.utime(file, ns=(now_ns, now_ns))
    finally:
        os.close(file)


def touched_at(run: Path, name: str) -> float | None:
    """Return the monotonic time of the last sign of life, or None if there was none."""
    try:
        return (run / name).stat().st_mtime
    except OSError:
        return None


def write_heartbeat(run: Path, queue: str, heartbeat: Heartbeat) -> None:
    """Write a worker's heartbeat; on a full disk only its sign of life."""
    name = f"heartbeat-{queue}"
    fresh = run / f"{name}.new"
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(asdict(heartbeat)))
        fresh.replace(run / name)
    with contextlib.suppress(OSError):
        touch(run, name)


def read_heartbeat(run: Path, queue: str) -> Heartbeat | None:
    """Return the last heartbeat of a queue's worker, or None if it is unreadable."""
    try:
        return Heartbeat(**json.loads((run / f"heartbeat-{queue}").read_text()))
    except (OSError, ValueError, TypeError):
        return None
