"""Test that the next round is that of the pool that is latest relative to its interval."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from django.utils import timezone

from scheduling import tasks
from scheduling.engine.clock import grid_instant, read_clock, wall_now
from scheduling.engine.due import due_rounds
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import Pool, PoolClock, PoolFence, RoundFailure
from tests.factories import BEGIN, Cluster, cluster
from tests.tools import PATIENCE_S


def pool(tenant: str, *, late_s: float, round_s: int, **fields: Any) -> Cluster:
    """Return a pool whose last round was on its grid, and whose next round is `late_s` late."""
    lab = cluster({tenant: 4}, round_s=round_s, **fields)
    PoolFence.objects.filter(pool=lab.pool).update(last_checked_at=BEGIN)
    show(lab, timedelta(seconds=round_s + late_s))
    return lab


def show(lab: Cluster, elapsed: timedelta) -> None:
    """Set the pool's clock to `elapsed` after its start."""
    wall = wall_now()
    PoolClock.objects.filter(pool=lab.pool).update(
        anchor_wall=wall, anchor_pool=BEGIN + elapsed, seen_wall=wall
    )


def show_new(lab: Cluster, elapsed: timedelta) -> None:
    """Set the clock of a pool without rounds, which started `elapsed` ago."""
    PoolFence.objects.filter(pool=lab.pool).update(last_checked_at=None)
    PoolClock.objects.filter(pool=lab.pool).update(
        anchor_wall=wall_now() - elapsed, anchor_pool=BEGIN
    )


def order(asked: int | None = None) -> list[int]:
    return [due.pool_id for due in due_rounds(asked)]


@pytest.mark.django_db
class TestDueOrder:
    def test_is_by_lateness_relative_to_interval(self) -> None:
        slow = pool("a", late_s=2_000, round_s=2_000)
        quick = pool("b", late_s=500, round_s=100)
        on_time = pool("c", late_s=-50, round_s=100)
        assert order() == [quick.pool.pk, slow.pool.pk]
        assert on_time.pool.pk not in order()
        assert due_rounds()[0].intervals_late == pytest.approx(5, abs=0.5)

    def test_puts_late_pool_before_new_pool(self) -> None:
        late = pool("a", late_s=1, round_s=1_000)
        new = cluster({"b": 4}, round_s=1_000)
        assert order() == [late.pool.pk, new.pool.pk]

    def test_counts_new_pool_from_start_of_its_clock(self) -> None:
        """Otherwise, if rounds are always late, a new pool would never get its first round."""
        late = pool("a", late_s=1_000, round_s=1_000)
        new = cluster({"b": 4}, round_s=1_000)
        show_new(new, timedelta(seconds=5_000))
        assert order() == [new.pool.pk, late.pool.pk]

    def test_omits_paused_pool(self) -> None:
        lab = pool("a", late_s=100, round_s=100)
        PoolClock.objects.filter(pool=lab.pool).update(paused=True)
        assert order() == []

    def test_omits_unreadable_pool(self) -> None:
        """An unreadable pool must not delay other pools."""
        Pool.objects.create(name="without-a-clock")
        well = pool("a", late_s=100, round_s=100)
        assert order() == [well.pool.pk]

    def test_counts_from_last_failure(self) -> None:
        """A pool whose rounds fail slowly must not delay other pools."""
        failing = pool("a", late_s=5_000, round_s=100)
        well = pool("b", late_s=100, round_s=100)
        RoundFailure.objects.create(pool=failing.pool, error="it failed", at=timezone.now())
        assert order() == [well.pool.pk, failing.pool.pk]

    def test_counts_from_grid_after_round_between_grid_times(self) -> None:
        lab = pool("a", late_s=100, round_s=1_000)
        PoolFence.objects.update(last_checked_at=BEGIN + timedelta(seconds=900))
        (due,) = due_rounds()
        assert due.intervals_late == pytest.approx(0.1, abs=0.05)
        assert due.pool_id == lab.pool.pk

    def test_puts_requested_pools_last(self) -> None:
        asked = pool("a", late_s=-50, round_s=100, on_demand=True)
        due = pool("b", late_s=1, round_s=100)
        deaf = pool("c", late_s=-50, round_s=100)
        assert order() == [due.pool.pk]
        assert order(asked.pool.pk) == [due.pool.pk, asked.pool.pk]
        assert order(deaf.pool.pk) == [due.pool.pk]
        Pool.objects.filter(pk=asked.pool.pk).update(on_demand=False)
        assert order(asked.pool.pk) == [due.pool.pk]

    def test_finds_submission_with_lost_message(self) -> None:
        lab = pool("a", late_s=-50, round_s=100, on_demand=True)
        assert order() == []
        lab.submit("a", 1, 100, after_s=10)
        assert order() == [lab.pool.pk]


@pytest.mark.django_db
class TestOneWorker:
    """Several pools whose rounds together take more time than one worker has."""

    def test_gives_each_pool_turns_relative_to_interval(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        takes_s = {}
        for index, (round_s, round_takes_s) in enumerate(
            [(500, 600), (500, 100), (2_000, 600), (4_000, 1_000)]
        ):
            lab = pool(f"t{index}", late_s=0, round_s=round_s)
            takes_s[lab.pool.pk] = round_takes_s
        elapsed_s = 0
        ran: dict[int, list[int]] = {pk: [] for pk in takes_s}

        def pass_time(seconds: int) -> None:
            nonlocal elapsed_s
            elapsed_s += seconds
            wall = wall_now()
            PoolClock.objects.update(
                anchor_wall=wall, anchor_pool=BEGIN + timedelta(seconds=elapsed_s), seen_wall=wall
            )

        def run_round(pool_id: int, *, on_demand: bool = False) -> RoundOutcome:
            assert not on_demand
            at = grid_instant(read_clock(pool_id), Pool.objects.get(pk=pool_id).round_s)
            PoolFence.objects.filter(pool_id=pool_id).update(last_checked_at=at)
            ran[pool_id].append(elapsed_s)
            pass_time(takes_s[pool_id])
            return RoundOutcome.QUIET

        monkeypatch.setattr(tasks, "run_round", run_round)
        monkeypatch.setattr(tasks, "ROUNDS_S", 0.0)
        pass_time(4_000)
        for _ in range(120):
            assert tasks.rounds() == 1
        intervals = []
        for pk, begins in ran.items():
            gaps = [later - earlier for earlier, later in pairwise(begins)]
            intervals.append(median(gaps) / Pool.objects.get(pk=pk).round_s)
        assert max(intervals) <= 3 * min(intervals)
        assert max(intervals) <= 3

    def test_continues_after_failed_and_fenced_rounds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        outcomes: dict[int, RoundOutcome | Exception] = {
            pool("a", late_s=3_000, round_s=100).pool.pk: RuntimeError("no quorum of oracles"),
            pool("b", late_s=2_000, round_s=100).pool.pk: RoundOutcome.FENCED,
            pool("c", late_s=1_000, round_s=100).pool.pk: RoundOutcome.NOT_DUE,
        }
        last = pool("d", late_s=100, round_s=100).pool.pk
        tried: list[int] = []

        def execute(pool_id: int, **_: object) -> RoundOutcome:
            tried.append(pool_id)
            if pool_id == last:
                PoolFence.objects.filter(pool_id=pool_id).update(
                    last_checked_at=BEGIN + timedelta(seconds=200)
                )
                return RoundOutcome.COMMITTED
            outcome = outcomes[pool_id]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(tasks, "run_round", execute)
        monkeypatch.setattr(tasks, "ROUNDS_S", PATIENCE_S)
        assert tasks.rounds() == 1
        assert tried == [*outcomes, last]

    def test_runs_on_demand_round_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = pool("a", late_s=-50, round_s=100, on_demand=True)
        lab.submit("a", 1, 100, after_s=60)
        looked: list[int] = []

        def execute(pool_id: int, **_: object) -> RoundOutcome:
            looked.append(pool_id)
            return RoundOutcome.QUIET

        monkeypatch.setattr(tasks, "run_round", execute)
        assert tasks.rounds(lab.pool.pk, unknown=1) == 1
        assert looked == [lab.pool.pk]


@pytest.mark.usefixtures("committed_db")
class TestRoundsTask:
    def test_runs_all_due_rounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "ROUNDS_S", PATIENCE_S)
        labs = [pool("a", late_s=100, round_s=100), pool("b", late_s=300, round_s=100)]
        for lab, tenant in zip(labs, "ab", strict=True):
            lab.submit(tenant, 1, 100)
        assert tasks.rounds() == 2
        assert [lab.pool.rounds.count() for lab in labs] == [1, 1]
        assert tasks.rounds() == 0
