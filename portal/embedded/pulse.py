"""Proof that workers and beat do their work, and the supervisor's watch on it.

The main process of each worker gives a heartbeat every `PULSE_EVERY_S`
(`portal.embedded.heartbeat`); beat gives a sign of life with each message that it sends. A process
is started anew only when these signs stop, when its task stands still or does not end, or when it
says that it is idle while its queue holds a message that it does not take: workers have stopped
consuming after a reconnect to the broker in several versions of Celery, while their processes
looked healthy. Beat sends every queue a pulse, so that there is always such a message. No process
is started anew for another's sake.

A process is judged from its first sign of life on. On a busy machine it starts late, and to end it
then would have it start for ever. Restarts of one process come further and further apart.

A worker of one process takes nothing while it runs a task. So a task shows its progress: its begin,
its end, and in between the processor time of the thread that runs it. A task that waits for ever
uses none; one that never ends is believed for `LONGEST_S`.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from portal.embedded import heartbeat
from portal.embedded.heartbeat import LONGEST_S, complaint, read_heartbeat, touched_at

PULSE_EVERY_S = 2.0
BEAT = "beat"
# By queue, and of beat. A task may wait for a while, for a lock or for a slow disk, without using
# the processor.
PATIENCE_S = {BEAT: 60.0, "default": 60.0, "rounds": 120.0}
# Several times the slowest start that was seen: 120 s, with 16 busy processes on 2 cores.
STARTING_S = 900.0
# The wait doubles with each restart, this often at most, until the process was well for so long.
MOST_DOUBLINGS = 4
WELL_S = 900.0
# So much of it counts; a thread that waits in a loop uses less in all of its patience.
WORK_S = 0.1


def touch(run: Path, name: str) -> None:
    """Called by the worker of the queue `name`, or by beat."""
    heartbeat.touch(run, f"pulse-{name}")


@dataclass
class RunningTask:
    """A task that a worker runs, and the processor time of its thread when it last counted."""

    run: Path
    queue: str
    begun: float
    used_s: float

    def look(self, now: float, used_s: float) -> bool:
        """Give a sign of life if it has worked since the last one; say whether it did."""
        alive = used_s - self.used_s >= WORK_S and now - self.begun <= LONGEST_S
        if alive:
            self.used_s = used_s
            touch(self.run, self.queue)
        return alive


class TaskWatch:
    """Looks at the task of this worker from a thread of its own, which a stopped worker stops."""

    def __init__(self) -> None:
        self._task: RunningTask | None = None
        self._clock = 0
        self._thread: threading.Thread | None = None

    def begin(self, run: Path, queue: str) -> None:
        """Begin to look at a task, in the thread that runs it."""
        touch(run, queue)
        if not hasattr(time, "pthread_getcpuclockid"):
            # macOS: its begin and its end have to do.
            self._task = RunningTask(run, queue, time.monotonic(), 0.0)
            return
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        used_s = time.clock_gettime(self._clock)
        self._task = RunningTask(run, queue, time.monotonic(), used_s)
        # After a fork the parent's thread is not there.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="task-watch", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Look no more: the task has ended."""
        task, self._task = self._task, None
        if task is not None:
            touch(task.run, task.queue)

    def _watch(self) -> None:
        while True:
            time.sleep(PULSE_EVERY_S)
            task = self._task
            if task is not None:
                task.look(time.monotonic(), time.clock_gettime(self._clock))


@dataclass
class Sign:
    """What is known of a process: its file's time, and when it started or last touched it.

    `well_since`: since when nothing was wrong with it.
    """

    patience_s: float
    stamp: float
    since: float
    is_ready: bool = False
    well_since: float = 0.0
    progress: float | None = None
    progress_at: float = 0.0
    restarts: int = 0

    @property
    def factor(self) -> float:
        """How many times its patience it gets now."""
        return float(2 ** min(self.restarts, MOST_DOUBLINGS))


@dataclass(frozen=True)
class Stalled:
    """A process that has to start anew, and why; it may be silent for `next_after_s` then."""

    name: str
    why: str
    next_after_s: float


class PulseWatch:
    """Judges signs of life on the monotonic clock, which stands still while a laptop sleeps.

    A file that a former run left in the folder `run` is no sign of life.
    """

    def __init__(self, run: Path, now: float) -> None:
        self._run = run
        self._signs = {
            name: Sign(wait_s, self._stamp(name), now) for name, wait_s in PATIENCE_S.items()
        }

    def starts(self, name: str, now: float) -> None:
        """Judge a queue's worker, or beat, from its first sign of life on: it was started."""
        sign = self._signs[name]
        sign.stamp, sign.since, sign.is_ready = self._stamp(name), now, False

    def stalled(self, now: float) -> list[Stalled]:
        """Return the queues, and `beat`, that have to start anew; each is judged from here."""
        late = []
        for name, sign in self._signs.items():
            self._look(name, sign, now)
            if self._complaint(name, sign, now, factor=1.0):
                sign.well_since = now
            elif sign.is_ready and now - sign.well_since > WELL_S:
                sign.restarts = 0
            why = self._complaint(name, sign, now, factor=sign.factor)
            if why:
                sign.restarts += 1
                self.starts(name, now)
                late.append(Stalled(name, why, sign.patience_s * sign.factor))
        return late

    def _look(self, name: str, sign: Sign, now: float) -> None:
        stamp = self._stamp(name)
        if stamp != sign.stamp:
            if not sign.is_ready:
                sign.well_since = sign.progress_at = now
            sign.stamp, sign.since, sign.is_ready = stamp, now, True
        progress = touched_at(self._run, f"pulse-{name}")
        if progress != sign.progress:
            sign.progress, sign.progress_at = progress, now

    def _complaint(self, name: str, sign: Sign, now: float, *, factor: float) -> str:
        silent_s = now - sign.since
        if not sign.is_ready:
            said = f"no sign of life since its start {silent_s:.0f} s ago"
            return said if silent_s > STARTING_S * factor else ""
        patience_s = sign.patience_s * factor
        if silent_s > patience_s:
            return f"no sign of life for {silent_s:.0f} s"
        if name == BEAT:
            return ""
        last = read_heartbeat(self._run, name)
        return complaint(last, now, progress_at=sign.progress_at, patience_s=patience_s)

    def _stamp(self, name: str) -> float:
        file = f"pulse-{BEAT}" if name == BEAT else f"heartbeat-{name}"
        return touched_at(self._run, file) or 0.0
