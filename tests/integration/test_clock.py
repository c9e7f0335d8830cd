"""Test that pool time never goes back, is scaled, and stops while no tick comes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from scheduling.engine import clock
from scheduling.models import PoolClock
from tests.factories import BEGIN, cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """Yield a stopped wall clock. To move it, append its new distance from the present."""
    offsets = [timedelta(0)]
    now = clock.wall_now()
    monkeypatch.setattr(clock, "wall_now", lambda: now + offsets[-1])
    return offsets


def pool_with(scale: int, **fields: Any) -> int:
    lab = cluster({"a": 8}, **fields)
    clock.set_clock(lab.pool.pk, scale=scale)
    PoolClock.objects.update(anchor_pool=BEGIN)
    return int(lab.pool.pk)


def about(seconds: float) -> object:
    """Return a matcher for this many seconds of pool time, give or take the test's duration."""
    return pytest.approx(seconds, abs=60)


def shown_s(pool_id: int) -> float:
    """Return the pool's clock at the test's wall time."""
    row = PoolClock.objects.get(pool_id=pool_id)
    return (clock.pool_time(row, clock.wall_now()) - BEGIN).total_seconds()


class TestScaledClock:
    def test_runs_faster_than_wall_clock(self, wall: list[timedelta]) -> None:
        pool_id = pool_with(60)
        wall.append(timedelta(seconds=10))
        assert shown_s(pool_id) == about(600)

    def test_resumes_at_last_tick_after_a_night(self, wall: list[timedelta]) -> None:
        pool_id = pool_with(60)
        wall.append(timedelta(seconds=10))
        clock.tick_clock(pool_id)
        wall.append(timedelta(hours=10))
        clock.tick_clock(pool_id)
        assert shown_s(pool_id) == about(600)
        wall.append(timedelta(hours=10, seconds=10))
        assert shown_s(pool_id) == about(1200)

    def test_continues_after_change_of_scale(self, wall: list[timedelta]) -> None:
        pool_id = pool_with(60)
        wall.append(timedelta(seconds=10))
        clock.set_clock(pool_id, scale=600)
        wall.append(timedelta(seconds=20))
        assert shown_s(pool_id) == pytest.approx(600 + 6000, abs=600)

    def test_is_read_with_wall_time_in_one_query(
        self, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        pool_id = pool_with(60)
        with django_assert_num_queries(1):
            now = clock.read_clock(pool_id)
        row = PoolClock.objects.get(pool_id=pool_id)
        assert now.pool_at == clock.pool_time(row, now.wall)
        assert timedelta(0) <= clock.wall_now() - now.wall < timedelta(seconds=60)


class TestRealClock:
    def test_counts_time_without_ticks(self, wall: list[timedelta]) -> None:
        pool_id = pool_with(1)
        wall.append(timedelta(hours=10))
        clock.tick_clock(pool_id)
        assert shown_s(pool_id) == about(36_000)


class TestClock:
    @pytest.mark.parametrize("scale", [1, 60])
    def test_never_goes_back_with_wall_clock(self, wall: list[timedelta], scale: int) -> None:
        pool_id = pool_with(scale)
        wall.append(timedelta(seconds=10))
        before = clock.tick_clock(pool_id)
        wall.append(timedelta(hours=-2))
        assert clock.tick_clock(pool_id).pool_at >= before.pool_at

    def test_stands_still_while_paused(self, wall: list[timedelta]) -> None:
        pool_id = pool_with(60)
        wall.append(timedelta(seconds=10))
        clock.set_clock(pool_id, paused=True)
        before = shown_s(pool_id)
        wall.append(timedelta(seconds=20))
        assert shown_s(pool_id) == before
        clock.set_clock(pool_id, paused=False)
        wall.append(timedelta(seconds=30))
        assert shown_s(pool_id) == about(before + 600)


class TestUnwatchedPool:
    def test_pauses_after_an_hour_and_wakes_for_viewer(self, wall: list[timedelta]) -> None:
        pool_id = pool_with(60, pause_unwatched_s=3600)
        for minutes in range(0, 64, 2):  # always ticking, never viewed
            wall.append(timedelta(minutes=minutes))
            PoolClock.objects.update(seen_wall=clock.wall_now())
            now = clock.tick_clock(pool_id)
            assert now.paused is (minutes > 60)
        assert clock.read_clock(pool_id).paused
        before = shown_s(pool_id)
        wall.append(timedelta(hours=5))
        clock.note_viewer(pool_id)
        assert not clock.read_clock(pool_id).paused
        assert shown_s(pool_id) == about(before)


class TestGrid:
    def test_uses_multiples_of_scaled_round_interval(self) -> None:
        now = clock.PoolNow(BEGIN, BEGIN + timedelta(seconds=899), 60, paused=False)
        assert clock.grid_instant(now, 5) == BEGIN + timedelta(seconds=600)
