"""Proof that a queue is consumed: its worker touches a file, the supervisor watches it.

Workers have stopped consuming after a reconnect to the broker in several versions of
Celery, while their processes looked healthy. Beat sends every queue a pulse; whoever
receives it touches the queue's file. A file that stays untouched means that beat, the
broker or the worker is stuck, whichever it is, and all of them are started anew.
"""

from collections.abc import Iterable
from pathlib import Path

PULSE_EVERY_S = 2.0
# A round may solve for a while, and a worker of one process receives nothing meanwhile.
PATIENCE_S = {"default": 20.0, "rounds": 120.0}


def touch(run: Path, queue: str) -> None:
    """Called by the worker of the queue."""
    (run / f"pulse-{queue}").touch()


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
