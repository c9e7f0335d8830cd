"""Beat on a clock that does not jump.

Celery's beat computes due tasks from the wall clock. If that clock is set back by ten minutes, beat
sends nothing for ten minutes. A restart does not help, because beat stores the last send times in a
file.
"""

import time
from datetime import UTC, datetime, timedelta

from celery.beat import PersistentScheduler
from celery.schedules import schedule

_BEGAN_AT, _BEGAN_S = datetime.now(UTC), time.monotonic()


def steady_now() -> datetime:
    """Return the wall time at the start of this process plus the steady time since."""
    return _BEGAN_AT + timedelta(seconds=time.monotonic() - _BEGAN_S)


def every(seconds: float) -> schedule:
    """Return a schedule on the steady clock."""
    return schedule(seconds, nowfun=steady_now)


class SteadyScheduler(PersistentScheduler):  # type: ignore[misc]  # untyped in the library
    """Stores send times. After the clock was set back, an entry with a later send time is due."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        now = steady_now()
        for entry in self.schedule.values():
            if entry.last_run_at > now:
                # Celery adds its own entry, which is scheduled by the hour of the day.
                entry.last_run_at = now - getattr(entry.schedule, "run_every", timedelta(0))
