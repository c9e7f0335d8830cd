"""What the clocks of a machine did between two looks: a jump of the wall clock, or a sleep.

Standard library only: workers look (`portal.site.worker_heartbeat`).
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# Less is a clock that is being corrected, or a process that had no time between two readings.
LEAST_S = 15.0
FILE = "clock"


@dataclass(frozen=True)
class ClockReading:
    """Three clocks at one moment: the wall's, one that never jumps, and one that counts sleep."""

    wall_s: float
    steady_s: float
    with_sleep_s: float


def read_clocks() -> ClockReading:
    """Read this machine's clocks; without a clock that counts sleep, a sleep looks like a jump."""
    steady_s = time.monotonic()
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return ClockReading(
        time.time(), steady_s, steady_s if boot is None else time.clock_gettime(boot)
    )


def jumped_s(before: ClockReading, now: ClockReading) -> float:
    """Return by how many seconds the wall clock was set ahead, below 0 back; 0 if it was not."""
    jump_s = (now.wall_s - before.wall_s) - (now.with_sleep_s - before.with_sleep_s)
    return jump_s if abs(jump_s) >= LEAST_S else 0.0


def slept_s(before: ClockReading, now: ClockReading) -> float:
    """Return how many seconds the machine slept; 0 if it did not."""
    sleep_s = (now.with_sleep_s - before.with_sleep_s) - (now.steady_s - before.steady_s)
    return sleep_s if sleep_s >= LEAST_S else 0.0


@dataclass(frozen=True)
class ClockEvent:
    """What the clocks did last: seconds of a jump and of a sleep, seen at `at` (wall seconds)."""

    at: float
    jumped_s: float
    slept_s: float


def note_clocks(run: Path, before: ClockReading, now: ClockReading) -> None:
    """Note a jump or a sleep between two readings, if there was one; on a full disk it is not."""
    event = ClockEvent(now.wall_s, jumped_s(before, now), slept_s(before, now))
    if event.jumped_s or event.slept_s:
        fresh = run / f"{FILE}.new"
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(asdict(event)))
            fresh.replace(run / FILE)


def read_clock_event(run: Path) -> ClockEvent | None:
    """Return what was noted last, or None if nothing was or it cannot be read."""
    try:
        return ClockEvent(**json.loads((run / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
