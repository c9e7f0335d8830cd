"""Test that beat sends tasks by elapsed time, even if the wall clock jumps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery
from celery.beat import ScheduleEntry

from portal.site import beat
from portal.site.celery import app


class Clocks:
    """A test's wall clock and monotonic clock, in seconds since its start."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.passed_s = 0.0
        wall, steady = datetime.now(UTC), time.monotonic()
        patch.setattr(Celery, "now", lambda _: wall + timedelta(seconds=self.wall_s))
        patch.setattr(time, "monotonic", lambda: steady + self.passed_s)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.mark.parametrize("name", sorted(app.conf.beat_schedule))
@pytest.mark.parametrize("jump_s", [-600, 3600])
def test_sends_messages_at_interval_after_clock_jump(
    clocks: Clocks, name: str, jump_s: int
) -> None:
    entry = ScheduleEntry(name=name, app=app, **app.conf.beat_schedule[name])
    every_s = entry.schedule.run_every.total_seconds()
    clocks.wall_s += jump_s
    for part, is_due in ((0.5, False), (0.6, True)):
        clocks.passed_s += part * every_s
        clocks.wall_s += part * every_s
        assert entry.is_due().is_due is is_due


@contextmanager
def scheduler(folder: Path) -> Iterator[beat.SteadyScheduler]:
    made = beat.SteadyScheduler(app=app, schedule_filename=str(folder / "beat"), lazy=True)
    made.setup_schedule()
    yield made
    made.close()


def test_ignores_last_run_in_future(tmp_path: Path) -> None:
    """The clock was set back, and beat restarted."""
    with scheduler(tmp_path) as before:
        for entry in before.schedule.values():
            entry.last_run_at = beat.steady_now() + timedelta(minutes=10)
    with scheduler(tmp_path) as after:
        assert all(after.schedule[name].is_due().is_due for name in app.conf.beat_schedule)


def test_keeps_last_runs_after_restart(clocks: Clocks, tmp_path: Path) -> None:
    with scheduler(tmp_path):
        pass
    clocks.passed_s += 100
    with scheduler(tmp_path) as after:
        due = {name for name, entry in after.schedule.items() if entry.is_due().is_due}
    assert "tick" in due
    assert "housekeeping" not in due


def test_is_configured_as_scheduler() -> None:
    assert app.conf.beat_scheduler == "portal.site.beat:SteadyScheduler"
