"""Test that rounds continue and engines are polled after the clock jumps or the machine sleeps.

The tests shift stored wall times in the opposite direction instead of the clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db.models import F

from scheduling import tasks
from scheduling.engine import breaker
from scheduling.engine.breaker import BreakerOpenError, GuardedExecutor
from scheduling.engine.clock import read_clock, set_clock, wall_now
from scheduling.engine.executors.base import executor_for
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.engine.fence import take_fence
from scheduling.engine.missing import HEARD_S, lost_leases
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import ExecutorHealth, Lease, PoolClock, PoolFence
from tests.factories import BEGIN, cluster

JUMPS = [pytest.param(-600, id="ten minutes back"), pytest.param(3600, id="an hour ahead")]


def jump(seconds: int) -> None:
    """Shift all stored times, which has the same effect as a jump of the database's clock."""
    by = timedelta(seconds=seconds)
    PoolClock.objects.update(
        anchor_wall=F("anchor_wall") - by,
        seen_wall=F("seen_wall") - by,
        viewed_wall=F("viewed_wall") - by,
    )
    PoolFence.objects.update(until=F("until") - by)


@pytest.mark.usefixtures("committed_db")
@pytest.mark.parametrize("seconds", JUMPS)
@pytest.mark.parametrize("scale", [1, 60])
def test_rounds_continue_after_clock_jump(seconds: int, scale: int) -> None:
    lab = cluster({"a": 4}, round_s=1_000, lease_s=1_000_000, policy="ltgf")
    lab.submit("a", 1, 10_000_000)
    set_clock(lab.pool.pk, scale=scale)
    PoolClock.objects.update(anchor_pool=BEGIN + timedelta(seconds=1_000 * scale))
    assert tasks.run_round(lab.pool.pk) is RoundOutcome.COMMITTED
    before = read_clock(lab.pool.pk).pool_at
    jump(seconds)
    lab.submit("a", 1, 10_000_000)
    PoolClock.objects.update(anchor_pool=F("anchor_pool") + timedelta(seconds=1_000 * scale))
    assert tasks.run_round(lab.pool.pk) is RoundOutcome.COMMITTED
    passed = read_clock(lab.pool.pk).pool_at - before
    # At scale 1, a jump ahead counts as time without rounds in which jobs continued.
    jumped_s = seconds if scale == 1 and seconds > 0 else 0
    # Only the elapsed time shows that the clock jumped.
    unexplained = passed - timedelta(seconds=1_000 * scale + jumped_s)
    assert abs(unexplained) < timedelta(seconds=300 * scale)
    assert Lease.objects.filter(ended_at=None).count() == 2


@pytest.mark.django_db
class TestBreaker:
    @pytest.mark.parametrize(
        ("open_s", "is_asked"),
        [(-1, True), (breaker.COOL_DOWN_MAX_S - 60, False), (breaker.COOL_DOWN_MAX_S + 600, True)],
    )
    def test_clock_set_back_does_not_keep_it_open(self, open_s: int, *, is_asked: bool) -> None:
        pool = cluster({"a": 4}).pool
        ExecutorHealth.objects.create(
            pool=pool,
            failures=breaker.FAILURES,
            open_until=wall_now() + timedelta(seconds=open_s),
        )
        guarded = GuardedExecutor(pool, executor_for("virtual"), "here")
        if is_asked:
            assert list(guarded.list(0).reports) == []
        else:
            with pytest.raises(BreakerOpenError):
                guarded.list(0)


class ForgetfulExecutor(VirtualExecutor):
    """An executor whose engine may forget processes for ten minutes."""

    traits = VirtualExecutor.traits._replace(silence_s=600)


@pytest.mark.django_db
class TestUnlistedLease:
    TOKEN = "es-1-1"

    @pytest.mark.parametrize(
        ("seconds", "listings"),
        [pytest.param(0, 10, id="no jump"), pytest.param(3600, 9, id="ahead"),
         pytest.param(-600, 10, id="back")],
    )  # fmt: skip
    def test_is_lost_after_silence_and_not_by_clock_jump(self, seconds: int, listings: int) -> None:
        pool = cluster({"a": 4}).pool
        fence = take_fence(pool.pk, holder="test")
        assert fence is not None
        guarded = GuardedExecutor(pool, ForgetfulExecutor(), "es")

        def lost_after(passed_s: int) -> list[str]:
            for row in ExecutorHealth.objects.all():
                by = timedelta(seconds=passed_s)
                since = datetime.fromisoformat(row.missing[self.TOKEN])
                row.missing = {self.TOKEN: (since - by).isoformat()}
                row.listed_at = row.listed_at - by if row.listed_at else None
                row.save()
            guarded.list(0)
            return lost_leases(guarded, pool, fence, missing=[self.TOKEN], launched=2)

        assert lost_after(0) == []
        assert lost_after(seconds) == []
        for _ in range(listings - 1):
            assert lost_after(HEARD_S) == []
        assert lost_after(HEARD_S) == [self.TOKEN]
