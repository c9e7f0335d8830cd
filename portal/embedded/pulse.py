"""Proof that workers and beat do their work: each touches a file, the supervisor watches it.

Workers have stopped consuming after a reconnect to the broker in several versions of
Celery, while their processes looked healthy. Beat sends every queue a pulse, and touches its own
file when it does; the worker that receives the pulse touches the file of the queue. A process
whose file stays untouched is started anew, and no other for its sake: while beat is silent, no
worker is judged.

A process is judged from its first sign of life on. On a busy machine it starts late, and to end it
then would have it start for ever.

A worker of one process receives no pulse while it runs a task, and pulses that waited behind one
have expired. So a task is a sign of life itself: its begin, its end, and in between the processor
time of the thread that runs it. A task that waits for ever uses none; one that never ends is
believed for `LONGEST_S`.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

PULSE_EVERY_S = 2.0
BEAT = "beat"
# By queue, and of beat. A task may wait for a while, for a lock or for a slow disk, without using
# the processor.
PATIENCE_S = {BEAT: 60.0, "default": 60.0, "rounds": 120.0}
# Several times the slowest start that was seen: 120 s, with 16 busy processes on 2 cores.
STARTING_S = 900.0
# The wait doubles with each restart that brings no sign of life, this often at most.
MOST_DOUBLINGS = 4
# So much of it counts; a thread that waits in a loop uses less in all of its patience.
WORK_S = 0.1
# No task takes so long: a round has lost its fence many times over.
LONGEST_S = 900.0


def touch(run: Path, name: str) -> None:
    """Called by the worker of the queue `name`, or by beat."""
    (run / f"pulse-{name}").touch()


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
    """What is known of a process: its file's time, and when it started or last touched it."""

    patience_s: float
    stamp: int
    since: float
    is_ready: bool = False
    restarts: int = 0

    def wait_s(self) -> float:
        """How long it may be silent now."""
        wait_s = self.patience_s if self.is_ready else STARTING_S
        return wait_s * 2.0 ** min(self.restarts, MOST_DOUBLINGS)


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

    def stalled(self, now: float) -> list[str]:
        """The queues, and `beat`, that are silent for too long; each starts from here."""
        late = []
        for name, sign in self._signs.items():
            stamp = self._stamp(name)
            if stamp != sign.stamp:
                # Two in a row: the restart has helped.
                sign.restarts = 0 if sign.is_ready else sign.restarts
                sign.stamp, sign.since, sign.is_ready = stamp, now, True
            elif name != BEAT and sign.is_ready and not self._sends(now):
                sign.since = now
            elif now - sign.since > sign.wait_s():
                late.append(name)
                sign.restarts += 1
                self.starts(name, now)
        return late

    def _sends(self, now: float) -> bool:
        """Whether beat sends pulses, so that silence is the worker's own."""
        beat = self._signs[BEAT]
        return beat.is_ready and now - beat.since <= 3 * PULSE_EVERY_S

    def _stamp(self, name: str) -> int:
        try:
            return (self._run / f"pulse-{name}").stat().st_mtime_ns
        except OSError:
            return 0
