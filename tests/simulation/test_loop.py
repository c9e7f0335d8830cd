"""Test the whole loop under a seeded scheduler, with assertions on protocol and outcome.

Histories have several workers, crashes, long pauses, lost and repeated wake-ups, and a failing
executor.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from random import Random

import pytest
from django.db import connection

from billing.checks import run_checks
from billing.metering import meter_pool, settle_pool
from scheduling.engine import breaker
from scheduling.engine import rounds as engine
from scheduling.engine.clock import PoolNow
from scheduling.engine.fence import take_fence
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseSlot, PoolFence, Round
from tenants.faults import arm_faults
from tests.factories import Cluster, cluster
from tests.simulation.gated import FaultyExecutor, Worker, gate

pytestmark = pytest.mark.usefixtures("committed_db")

STEPS, MAX_WORKERS, FAULT_RATE = 120, 3, 0.15


class Loop:
    """The pool, workers and clock of a seed."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = Random(seed)  # noqa: S311 - a history, not a secret
        self.lab: Cluster = cluster({"a": 5, "b": 3}, lease_s=20, policy="ltgf")
        self.workers: list[Worker] = []
        self.outcomes: list[str] = []
        self.durations: dict[int, int] = {}
        self.executor = FaultyExecutor(self.random, FAULT_RATE)
        self.tokens: dict[int, int | None] = {}
        monkeypatch.setattr(engine, "take_fence", self.take)
        monkeypatch.setattr(engine, "executor_for", lambda _: self.executor)
        # The breaker's cool-down is in wall time, which is frozen here.
        monkeypatch.setattr(breaker, "COOL_DOWN_S", 0)

    def run(self) -> None:
        """Take random steps, then finish all work."""
        moves = (
            *(self.submit,) * 2,
            *(self.wake,) * 5,
            *(self.advance,) * 14,
            *(self.pass_time,) * 4,
            *(self.meter,) * 2,
            self.expire_fence,
            self.cancel,
        )
        with arm_faults(gate(self.workers, self.may_write)):
            for _ in range(STEPS):
                self.random.choice(moves)()
            while self.workers:
                self.advance()
        self.executor.rate = 0
        self.expire_fence()

    def take(self, pool_id: int, *, holder: str, hold_s: float) -> int | None:
        """Take the fence, and record this worker's token."""
        token = take_fence(pool_id, holder=holder, hold_s=hold_s)
        self.tokens[threading.get_ident()] = token
        return token

    def may_write(self) -> bool:
        """Return whether the calling worker still holds the pool."""
        token = self.tokens[threading.get_ident()]
        return PoolFence.objects.values_list("token", flat=True).get() == token

    def submit(self) -> None:
        """Submit a job of a random size."""
        duration_s = self.random.choice((5, 15, 45))
        job = self.lab.submit(self.random.choice("ab"), self.random.randint(1, 6), duration_s)
        self.durations[job.pk] = duration_s * 1_000_000

    def cancel(self) -> None:
        """Cancel a random job, even a finished one."""
        if self.durations:
            job = self.random.choice(sorted(self.durations))
            active = Job.objects.filter(pk=job, state__in=Job.ACTIVE_STATES)
            active.update(cancel_asked_at=self.lab.at)

    def wake(self) -> None:
        """Add a wake-up, which may be repeated, or for a time that is already decided."""
        if len(self.workers) < MAX_WORKERS:
            late = self.lab.at - timedelta(seconds=self.random.choice((0, 0, 0, 10)))
            now = PoolNow(late, late, 1, paused=False)
            pool_id = self.lab.pool.pk
            self.workers.append(
                Worker(lambda: engine.execute_round(pool_id, now=now).outcome.value)
            )

    def advance(self) -> None:
        """Run a worker to its next point, or make it crash."""
        if not self.workers:
            return
        worker = self.random.choice(self.workers)
        worker.advance(crash=self.random.random() < 0.06)
        if worker.is_over:
            self.workers.remove(worker)
            self.outcomes.append(worker.outcome)

    def pass_time(self) -> None:
        """Advance to the next grid instant."""
        self.lab.at += timedelta(seconds=10)

    def expire_fence(self) -> None:
        """Expire the holder's fence."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")

    def meter(self) -> None:
        meter_pool(self.lab.pool.pk)
        settle_pool(self.lab.pool.pk)


def assert_protocol(loop: Loop) -> None:
    """Check the invariants of every history, whatever its outcome."""
    allowed = {"committed", "not_due", "quiet", "fenced", "crashed"}
    assert set(loop.outcomes) <= allowed, set(loop.outcomes) - allowed
    rounds = list(Round.objects.order_by("id").values_list("token", "at", "number"))
    # No superseded token commits: tokens, times and numbers only grow.
    assert rounds == sorted(rounds)
    assert len({token for token, _, _ in rounds}) == len(rounds)
    assert [number for _, _, number in rounds] == list(range(1, len(rounds) + 1))
    numbers = list(LeaseEvent.objects.order_by("id").values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))
    held = LeaseSlot.objects.filter(holding=True)
    assert held.count() == held.values("node", "slot").distinct().count()


def assert_outcome(loop: Loop) -> None:
    """Check that everything ends once faults stop: each job did its work, and the books balance."""
    lab = loop.lab
    for _ in range(400):
        if not lab.pool.jobs.filter(state__in=Job.ACTIVE_STATES).exists():
            break
        lab.round(after_s=10)
    lab.round(after_s=7200)
    loop.meter()
    assert set(lab.pool.jobs.values_list("state", flat=True)) <= {"succeeded", "cancelled"}
    assert not Intent.objects.filter(state="open").exists()
    assert not Lease.objects.exclude(state="ended").exists()
    for job in lab.pool.jobs.filter(state="succeeded").select_related("virtual_work"):
        assert job.virtual_work.done_us == loop.durations[job.pk]
    assert [(check.name, check.violations[:2]) for check in run_checks() if check.violations] == []


def play(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(seed, monkeypatch)
    loop.run()
    assert_protocol(loop)
    assert_outcome(loop)


@pytest.mark.parametrize("seed", range(6))
def test_survives_seeded_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    play(seed, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_survives_many_seeded_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    play(seed, monkeypatch)
