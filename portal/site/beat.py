"""Beat on a clock that does not jump.

Celery's beat works out from the wall clock what is due: set back by ten minutes, it sends nothing
for ten minutes, and a restart does not help, for it keeps in a file when it sent what.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from celery.beat import PersistentScheduler
from celery.schedules import schedule

_BEGAN_AT, _BEGAN_S = datetime.now(UTC), time.monotonic()


def steady_now() -> datetime:
    """Return the wall time at which this process began, and what has passed since."""
    return _BEGAN_AT + timedelta(seconds=time.monotonic() - _BEGAN_S)


def every(seconds: float) -> schedule:
    """Return a schedule on the steady clock."""
    return schedule(seconds, nowfun=steady_now)


class SteadyScheduler(PersistentScheduler):  # type: ignore[misc]  # untyped in the library
    """Keeps what was sent when; what was sent after now, by a clock that was set back, is due."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        now = steady_now()
        for entry in self.schedule.values():
            if entry.last_run_at > now:
                # Celery has an entry of its own, by the hour of the day.
                entry.last_run_at = now - getattr(entry.schedule, "run_every", timedelta(0))
