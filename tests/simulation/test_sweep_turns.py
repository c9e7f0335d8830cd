"""Sweeps and dependencies through the live engine, under a seeded history with many faults.

Jobs end, fail, are lost and cancelled; rounds crash at their fault points, also where the next jobs
are released. In no round are more jobs of a sweep under way than it allows. In the end, every job
was released or cancelled for a reason.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduling.engine import observe, turns
from scheduling.models import Job, JobDependency, Round, Sweep, VirtualWork
from scheduling.selectors.rounds.stored import round_values
from scheduling.services.submit import submit_job
from scheduling.services.sweeps import cancel_sweep, resubmit_failed, submit_sweep
from tests.simulation.gated import CrashError
from tests.simulation.test_policy_chaos import REST_ROUNDS, Chaos, assert_books, assert_rounds

pytestmark = pytest.mark.usefixtures("committed_db")

ROUNDS, LOST_RATE = 14, 0.3
CRASH_RATE, TURN_CRASH_RATE = 0.01, 0.3


class SweepChaos(Chaos):
    """A pool whose jobs belong to sweeps, or wait for other jobs."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(seed, "ltgf", monkeypatch)
        self.release = turns.release_due
        monkeypatch.setattr(observe, "release_due", self.lose_some)

    def lose_some(self, pool_id: int, **given: Any) -> int:
        """Release jobs, or lose this step."""
        if self.executor.rate and self.random.random() < LOST_RATE:
            return 0
        return self.release(pool_id, **given)

    def step(self) -> None:
        super().step()
        for move, rate in ((self.cancel_sweep, 0.08), (self.resubmit, 0.3)):
            if self.random.random() < rate:
                move()

    def submit(self) -> None:
        """Submit a sweep or a job, which may have to wait for an earlier job."""
        tenant = self.lab.tenants[self.random.choice("ab")]
        spec: dict[str, Any] = {
            "pool": self.lab.pool.name, "gpus": self.random.choice((1, 1, 2)),
            "duration_s": self.random.choice((5, 15, 35)),
        }  # fmt: skip
        earlier = Job.objects.filter(tenant=tenant).exclude(state__in=("failed", "cancelled"))
        if earlier and self.random.random() < 0.4:
            needed = self.random.choice(list(earlier.order_by("id")))
            spec[self.random.choice(("after_ok", "after_any"))] = [str(needed.uid)]
        given: dict[str, Any] = {"tenant": tenant, "user": None, "now": lambda _: self.lab.now()}
        if self.random.random() < 0.4:
            submit_job(**given, spec=spec)
        else:
            jobs, at_once = self.random.choice((3, 6)), self.random.choice((1, 2, 3))
            submit_sweep(**given, spec={**spec, "array": f"1-{jobs}%{at_once}"})
        failing = VirtualWork.objects.filter(launched_us=None, token="", done_us=0)
        for work in failing.order_by("pk"):
            if self.random.random() < 0.2:
                VirtualWork.objects.filter(pk=work.pk).update(exit_code=1)

    def cancel_sweep(self) -> None:
        sweep = self.random.choice([None, *Sweep.objects.order_by("id")])
        if sweep is not None:
            cancel_sweep(sweep=sweep, now=self.lab.now())

    def resubmit(self) -> None:
        failed = Sweep.objects.filter(jobs__state="failed", resubmissions=None).distinct()
        for sweep in failed.order_by("id")[:1]:
            resubmit_failed(sweep=sweep, user=None, now=lambda _: self.lab.now())

    def round(self) -> None:
        super().round()
        for sweep in Sweep.objects.filter(at_once__isnull=False):
            active = sweep.jobs.filter(state__in=Job.ACTIVE_STATES)
            assert sweep.at_once is not None
            assert active.exclude(holds__contains=["sweep"]).count() <= sweep.at_once

    def rest(self) -> None:
        """Run without faults until all jobs have ended by themselves."""
        self.executor.rate = 0
        self.mend_node()
        for _ in range(10 * REST_ROUNDS):
            if not Job.objects.filter(state__in=Job.ACTIVE_STATES).exists():
                break
            self.round()
        self.lab.at += timedelta(hours=2)
        self.round()
        self.meter()

    def _crash(self, name: str) -> None:
        rate = TURN_CRASH_RATE if name == "turns.before_commit" else CRASH_RATE
        if self.executor.rate and self.random.random() < rate:
            raise CrashError


def assert_at_most_at_once(rounds: list[Round]) -> int:
    """Check the jobs of each sweep in the decisions of rounds; return the most of any sweep."""
    sweep_of = dict(Job.objects.exclude(sweep=None).values_list("pk", "sweep"))
    limits = dict(Sweep.objects.values_list("pk", "at_once"))
    most = 0
    for row in rounds:
        snapshot, decision = round_values(row)
        jobs = {lease.job for lease in snapshot.leases} | {one.job for one in decision.grants}
        for sweep, limit in limits.items():
            under_way = sum(sweep_of.get(job) == sweep for job in jobs)
            assert limit is None or under_way <= limit, (row.number, sweep)
            most = max(most, under_way)
    return most


def assert_released() -> None:
    """Check that no job waits for ever, and that cancelled ones had to be cancelled."""
    ended = Job.objects.exclude(state="cancelled")
    assert not Job.objects.filter(state__in=Job.ACTIVE_STATES).exists()
    assert not ended.exclude(holds=[]).exists()
    for row in JobDependency.objects.select_related("job", "needs"):
        if row.job.first_started_at is not None:
            assert row.needs.ended_at is not None
            assert row.needs.ended_at <= row.job.first_started_at
            assert row.condition == "after_any" or row.needs.state == "succeeded"
        if row.is_broken:
            assert (row.job.state, row.condition) == ("cancelled", "after_ok")
            assert row.needs.state in ("failed", "cancelled")


def play(seed: int, monkeypatch: pytest.MonkeyPatch, rounds: int = ROUNDS) -> None:
    chaos = SweepChaos(seed, monkeypatch)
    for _ in range(rounds):
        chaos.step()
    chaos.rest()
    assert_released()
    stored = list(Round.objects.order_by("number"))
    assert assert_at_most_at_once(stored) > 1
    assert_rounds(stored)
    assert_books()


class TestSweeps:
    def test_keep_their_limits_in_seeded_history(self, monkeypatch: pytest.MonkeyPatch) -> None:
        play(1, monkeypatch)

    @pytest.mark.parametrize("seed", range(2, 8))
    def test_keep_their_limits_in_more_histories(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        play(seed, monkeypatch)

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", range(3000, 3010))
    def test_keep_their_limits_in_longer_histories(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        play(seed, monkeypatch, rounds=100)
