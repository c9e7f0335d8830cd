"""Detects clock jumps and sleeps between two readings of a machine's clocks.

Standard library only: workers use it (`portal.site.worker_heartbeat`).
"""

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# A smaller difference is a clock correction, or a delay between two readings.
LEAST_S = 15.0
FILE = "clock"


@dataclass(frozen=True)
class ClockReading:
    """Three clocks at one moment: wall, monotonic, and monotonic with the time of sleep."""

    wall_s: float
    steady_s: float
    with_sleep_s: float


def read_clocks() -> ClockReading:
    """Read this machine's clocks; on a system without the third, a sleep looks like a jump."""
    steady_s = time.monotonic()
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return ClockReading(
        time.time(), steady_s, steady_s if boot is None else time.clock_gettime(boot)
    )


def jumped_s(before: ClockReading, now: ClockReading) -> float:
    """Return the seconds that the wall clock was set ahead (negative: back), 0 if it was not."""
    jump_s = (now.wall_s - before.wall_s) - (now.with_sleep_s - before.with_sleep_s)
    return jump_s if abs(jump_s) >= LEAST_S else 0.0


def slept_s(before: ClockReading, now: ClockReading) -> float:
    """Return the seconds that the machine slept, 0 if it did not."""
    sleep_s = (now.with_sleep_s - before.with_sleep_s) - (now.steady_s - before.steady_s)
    return sleep_s if sleep_s >= LEAST_S else 0.0


@dataclass(frozen=True)
class ClockEvent:
    """The last clock event: seconds of a jump and of a sleep, detected at `at` (wall seconds)."""

    at: float
    jumped_s: float
    slept_s: float


def note_clocks(run: Path, before: ClockReading, now: ClockReading) -> None:
    """Store a jump or a sleep between two readings, if any; skipped on a full disk."""
    event = ClockEvent(now.wall_s, jumped_s(before, now), slept_s(before, now))
    if event.jumped_s or event.slept_s:
        fresh = run / f"{FILE}.new"
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(asdict(event)))
            fresh.replace(run / FILE)


def read_clock_event(run: Path) -> ClockEvent | None:
    """Return the last event, or None if there is none or it is unreadable."""
    try:
        return ClockEvent(**json.loads((run / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
