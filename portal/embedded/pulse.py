"""The supervisor's liveness checks of workers and beat.

The main process of each worker writes a heartbeat every `PULSE_EVERY_S`
(`portal.embedded.heartbeat`). Beat gives a sign of life with each message that it sends. A process
restarts only if these signs stop, its task stalls or does not end, or it is idle while its queue
holds messages. In several versions of Celery, workers stopped consuming after a reconnect
to the broker, while their processes looked healthy. Beat sends every queue a pulse, so that there
is always such a message. No process restarts because of another one.

A process is judged from its first sign of life on. A busy machine starts it late, and restarting it
then would never end. Restarts of a process come further and further apart.

A worker of one process takes no messages while it runs a task. So a task shows its progress: its
start, its end, and in between the processor time of its thread. A task that waits forever uses
none; a task that never ends is trusted for `LONGEST_S`.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from portal.embedded import heartbeat
from portal.embedded.heartbeat import LONGEST_S, complaint, read_heartbeat, touched_at

PULSE_EVERY_S = 2.0
BEAT = "beat"
# Accepted seconds without a sign of life, by queue and for beat. A task may wait for a lock or a
# slow disk.
PATIENCE_S = {BEAT: 60.0, "default": 60.0, "rounds": 120.0}
# Several times the slowest observed start: 120 s, with 16 busy processes on 2 cores.
STARTING_S = 900.0
# Patience doubles at each restart, at most this often, until the process is healthy for WELL_S.
MOST_DOUBLINGS = 4
WELL_S = 900.0
# Processor time that counts as progress; a thread that polls in a loop uses less.
WORK_S = 0.1


def touch(run: Path, name: str) -> None:
    """Record a sign of life from the worker of queue `name`, or from beat."""
    heartbeat.touch(run, f"pulse-{name}")


@dataclass
class RunningTask:
    """A task of a worker, and the processor time of its thread at its last progress."""

    run: Path
    queue: str
    begun: float
    used_s: float

    def look(self, now: float, used_s: float) -> bool:
        """Give a sign of life if the task has worked since the last one; return whether it has."""
        alive = used_s - self.used_s >= WORK_S and now - self.begun <= LONGEST_S
        if alive:
            self.used_s = used_s
            touch(self.run, self.queue)
        return alive


class TaskWatch:
    """Watches the task of this worker from its own thread, which stops with the worker."""

    def __init__(self) -> None:
        self._task: RunningTask | None = None
        self._clock = 0
        self._thread: threading.Thread | None = None

    def begin(self, run: Path, queue: str) -> None:
        """Start to watch a task, in the thread that runs it."""
        touch(run, queue)
        if not hasattr(time, "pthread_getcpuclockid"):
            # macOS cannot measure it: only the start and the end of a task count.
            self._task = RunningTask(run, queue, time.monotonic(), 0.0)
            return
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        used_s = time.clock_gettime(self._clock)
        self._task = RunningTask(run, queue, time.monotonic(), used_s)
        # After a fork the parent's thread does not exist.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="task-watch", daemon=True)
            self._thread.start()

    def end(self) -> None:
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
    """The signs of life of a process.

    `stamp`: the time of its file. `since`: when the process started or last touched the file.
    `well_since`: since when the process has had no fault.
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
        """Return the present factor of the process's patience, after its restarts."""
        return float(2 ** min(self.restarts, MOST_DOUBLINGS))


class PulseWatch:
    """Judges signs of life on the monotonic clock, which stops while a laptop sleeps.

    A file in the folder `run` from a former run is no sign of life.
    """

    def __init__(self, run: Path, now: float) -> None:
        self._run = run
        self._signs = {
            name: Sign(wait_s, self._stamp(name), now) for name, wait_s in PATIENCE_S.items()
        }

    def starts(self, name: str, now: float) -> None:
        """Note a start. The worker or beat is judged from its first sign of life on."""
        sign = self._signs[name]
        sign.stamp, sign.since, sign.is_ready = self._stamp(name), now, False

    def stalled(self, now: float) -> list[tuple[str, str, float]]:
        """Return the queues, and `beat`, that must restart; each counts as started now.

        Each comes with the reason, and with the time for which it may then be silent.
        """
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
                late.append((name, why, sign.patience_s * sign.factor))
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
            said = f"no heartbeat since its start {silent_s:.0f} s ago"
            return said if silent_s > STARTING_S * factor else ""
        patience_s = sign.patience_s * factor
        if silent_s > patience_s:
            return f"no heartbeat for {silent_s:.0f} s"
        if name == BEAT:
            return ""
        last = read_heartbeat(self._run, name)
        return complaint(last, now, progress_at=sign.progress_at, patience_s=patience_s)

    def _stamp(self, name: str) -> float:
        file = f"pulse-{BEAT}" if name == BEAT else f"heartbeat-{name}"
        return touched_at(self._run, file) or 0.0
