"""Test that a pool has one writer: contenders, stale holders and crashes in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F

import scheduling.engine.rounds as engine
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from scheduling.engine.clock import PoolNow
from scheduling.engine.fence import FencedError, lock_fence, release_fence, take_fence
from scheduling.engine.rounds import RoundOutcome, RoundResult, execute_round
from scheduling.models import Intent, Lease, LeaseEvent, LeaseSlot, PoolFence, Round
from tenants import scopes
from tenants.scopes import engine_scope
from tests.factories import BEGIN, Cluster, cluster
from tests.tools import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("committed_db")

CHILD = Path(__file__).with_name("round_process.py")


def busy_cluster() -> Cluster:
    lab = cluster({"a": 5, "b": 3}, lease_s=20, policy="ltgf")
    for gpus in (1, 2, 3, 4):
        lab.submit("a", gpus, 45)
        lab.submit("b", gpus, 45)
    return lab


def child(lab: Cluster, stop_at: str, *, hold_s: float = 30) -> subprocess.Popen[str]:
    """Start a process that runs the pool's round and stops itself at a named point."""
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(lab.pool.pk), lab.at.isoformat(), stop_at, str(hold_s)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "portal.site.settings"},
    )


def expire_fence() -> None:
    """Make the holder's time expire at once by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")


def later_fence(seconds: int) -> None:
    """Shift the fence's times as if the database's clock had been set back."""
    PoolFence.objects.update(until=F("until") + timedelta(seconds=seconds))


class TestFence:
    def test_is_held_by_one_holder_until_released(self) -> None:
        lab = busy_cluster()
        token = take_fence(lab.pool.pk, holder="one")
        assert token is not None
        assert take_fence(lab.pool.pk, holder="two") is None
        release_fence(lab.pool.pk, token)
        assert take_fence(lab.pool.pk, holder="two") == token + 1

    @pytest.mark.parametrize("back_s", [10, 600])
    def test_is_free_after_release_if_clock_was_set_back(self, back_s: int) -> None:
        lab = busy_cluster()
        token = take_fence(lab.pool.pk, holder="one")
        assert token is not None
        release_fence(lab.pool.pk, token)
        later_fence(back_s)
        assert take_fence(lab.pool.pk, holder="two") == token + 1

    def test_expires_on_time_if_clock_was_set_back(self) -> None:
        """The holder is dead. By the wrong clock, its fence would expire only in ten minutes."""
        lab = busy_cluster()
        token = take_fence(lab.pool.pk, holder="one")
        assert token is not None
        later_fence(10 * 60)
        assert take_fence(lab.pool.pk, holder="two") == token + 1

    def test_stale_holder_cannot_release_it(self) -> None:
        lab = busy_cluster()
        stale = take_fence(lab.pool.pk, holder="one")
        assert stale is not None
        expire_fence()
        assert take_fence(lab.pool.pk, holder="two") == stale + 1
        release_fence(lab.pool.pk, stale)
        assert take_fence(lab.pool.pk, holder="three") is None

    def test_locks_for_current_token_only(self) -> None:
        lab = busy_cluster()
        token = take_fence(lab.pool.pk, holder="one")
        assert token is not None
        with transaction.atomic():
            assert lock_fence(lab.pool.pk, token).token == token
            with pytest.raises(FencedError) as refused:
                lock_fence(lab.pool.pk, token - 1)
        assert (refused.value.pool_id, refused.value.token) == (lab.pool.pk, token - 1)

    def test_frozen_writer_does_not_block_others(self) -> None:
        lab = busy_cluster()
        frozen, go_on = threading.Event(), threading.Event()

        def freeze() -> None:
            with engine_scope(lab.pool.pk):
                lock_fence(lab.pool.pk, 0)
                frozen.set()
                go_on.wait(PATIENCE_S)
            connection.close()

        thread = threading.Thread(target=freeze)
        thread.start()
        assert frozen.wait(PATIENCE_S)
        # The round returns at once, without waiting for the frozen session.
        assert execute_round(lab.pool.pk, now=lab.now()).outcome is RoundOutcome.FENCED
        go_on.set()
        thread.join()
        assert execute_round(lab.pool.pk, now=lab.now()).outcome is RoundOutcome.COMMITTED

    def test_writer_frozen_in_transaction_loses_its_lock(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scopes, "IDLE_S", 1)
        lab = busy_cluster()
        cut: list[type[Exception]] = []
        locked, seen = threading.Event(), threading.Event()

        def freeze() -> None:
            try:
                with engine_scope(lab.pool.pk):
                    lock_fence(lab.pool.pk, 0)
                    locked.set()
                    seen.wait(PATIENCE_S)
                    PoolFence.objects.update(holder="me")
            except DatabaseError as error:
                cut.append(type(error))
            connection.close()

        thread = threading.Thread(target=freeze)
        thread.start()
        assert locked.wait(PATIENCE_S)
        monkeypatch.undo()
        eventually(lambda: execute_round(lab.pool.pk, now=lab.now()).round is not None)
        seen.set()
        thread.join()
        assert cut
        assert PoolFence.objects.get().holder != "me"


class TestConcurrentRounds:
    def test_loser_writes_nothing_and_returns_fenced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = busy_cluster()
        deciding, go_on = threading.Event(), threading.Event()
        decide = decide_round

        def slowly(snapshot: Snapshot) -> Decision:
            deciding.set()
            assert go_on.wait(PATIENCE_S)
            return decide(snapshot)

        monkeypatch.setattr(engine, "decide_round", slowly)
        results: list[RoundResult] = []

        def first() -> None:
            results.append(execute_round(lab.pool.pk, now=lab.now()))
            connection.close()

        thread = threading.Thread(target=first)
        thread.start()
        assert deciding.wait(PATIENCE_S)
        assert execute_round(lab.pool.pk, now=lab.now()).outcome is RoundOutcome.FENCED
        go_on.set()
        thread.join()
        assert [result.outcome for result in results] == [RoundOutcome.COMMITTED]
        assert Round.objects.count() == 1

    def test_many_contenders_commit_one_round_per_grid_time(self) -> None:
        lab = busy_cluster()
        outcomes: list[RoundOutcome] = []

        def contend(now: PoolNow) -> None:
            outcomes.append(execute_round(lab.pool.pk, now=now).outcome)
            connection.close()

        for step in range(5):
            lab.at = BEGIN + timedelta(seconds=10 * step)
            threads = [threading.Thread(target=contend, args=[lab.now()]) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert outcomes.count(RoundOutcome.COMMITTED) == 5
        assert Round.objects.values("at").distinct().count() == Round.objects.count() == 5

    def test_database_rejects_second_round_of_same_time(self) -> None:
        lab = busy_cluster()
        round_ = lab.round().round
        assert round_
        round_.pk, round_.number = None, 99
        with pytest.raises(IntegrityError, match="round_instant_once"):
            round_.save(force_insert=True)


class TestStaleHolder:
    def test_writes_no_row_after_its_fence_expired(self) -> None:
        lab = busy_cluster()
        sleeper = child(lab, "round.after_decide:stop")
        try:
            assert sleeper.stdout
            assert sleeper.stdout.readline() == "round.after_decide\n"
            eventually(lambda: "\nState:\tT" in Path(f"/proc/{sleeper.pid}/status").read_text())
            expire_fence()
            assert lab.round().outcome is RoundOutcome.COMMITTED
            before = _written()
            os.kill(sleeper.pid, signal.SIGCONT)
            assert sleeper.stdout.read() == "fenced\n"
            assert sleeper.wait(PATIENCE_S) == 0
            assert _written() == before
        finally:
            sleeper.kill()
            sleeper.wait()


def _written() -> tuple[int, ...]:
    rows = (Round, Lease, LeaseEvent, LeaseSlot, Intent)
    counts = tuple(model.objects.count() for model in rows)
    return (*counts, PoolFence.objects.get().next_event)
