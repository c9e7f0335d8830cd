"""Proof that a queue is consumed: its worker touches a file, the supervisor watches it.

Workers have stopped consuming after a reconnect to the broker in several versions of
Celery, while their processes looked healthy. Beat sends every queue a pulse; whoever
receives it touches the queue's file. A file that stays untouched means that beat, the
broker or the worker is stuck, whichever it is, and all of them are started anew.

A worker of one process receives no pulse while it runs a task, and pulses that waited behind one
have expired. So a task is a sign of life itself: its begin, its end, and in between the processor
time of the thread that runs it. A task that waits for ever uses none; one that never ends is
believed for `LONGEST_S`.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PULSE_EVERY_S = 2.0
# A round may wait for a while, for a lock or for a slow disk, without using the processor.
PATIENCE_S = {"default": 20.0, "rounds": 120.0}
# So much of it counts; a thread that waits in a loop uses less in all of its patience.
WORK_S = 0.1
# No task takes so long: a round has lost its fence many times over.
LONGEST_S = 900.0


def touch(run: Path, queue: str) -> None:
    """Called by the worker of the queue."""
    (run / f"pulse-{queue}").touch()


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


class PulseWatch:
    """Judges the pulses on the monotonic clock, which stands still while a laptop sleeps."""

    def __init__(self, run: Path, now: float, queues: Iterable[str] = PATIENCE_S) -> None:
        self._run = run
        self._seen = {queue: (self._stamp(queue), now) for queue in queues}

    def stalled(self, now: float) -> list[str]:
        """The queues whose pulse has stopped; each counts anew from here."""
        late = []
        for queue, (stamp, since) in self._seen.items():
            current = self._stamp(queue)
            if current != stamp:
                self._seen[queue] = (current, now)
            elif now - since > PATIENCE_S[queue]:
                late.append(queue)
                self._seen[queue] = (current, now)
        return late

    def _stamp(self, queue: str) -> int:
        try:
            return (self._run / f"pulse-{queue}").stat().st_mtime_ns
        except OSError:
            return 0
