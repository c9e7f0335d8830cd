"""Test that the example of docs/executors.md meets the contract of every executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from evenshare_core.domain.instants import to_us
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import ExecutorError, lease_token, token_job
from scheduling.models import Job, Lease
from tests.factories import cluster
from tests.fake_executor.engine import FakeEngine
from tests.fake_executor.executor import FakeExecutor
from tests.integration.executor_contract import RUNNING, STOPPED, ExecutorContract, Stage
from tests.integration.executor_faults import FaultyExecutorContract
from tests.integration.reconcile_contract import ReconcileContract

pytestmark = pytest.mark.usefixtures("committed_db")


class FakeStage(Stage):
    """Jobs that only pretend to run, in real time."""

    def __init__(self, folder: Path) -> None:
        self.lab = cluster({"a": 16}, nodes=4)
        self.pool = self.lab.pool
        self.executor = FakeExecutor()
        self.engine = FakeEngine(folder / "engine.json")

    def lease(self, *, runs_s: float, exit_code: int = 0, after: str = "") -> str:
        if after:
            job = Job.objects.get(pk=token_job(after))
        else:
            job = self.lab.submit("a", 1, 1, command=[str(runs_s), str(exit_code)])
        number = job.leases.count() + 1
        at = read_clock(self.pool.pk).pool_at
        Job.objects.filter(pk=job.pk).update(state="running")
        Lease.objects.create(
            pool=self.pool, tenant=job.tenant, job=job, gpu_type=self.lab.gpu_type, number=number,
            state="launching", gpus=1, placement=[], granted_round=1, granted_at=at,
            expires_at=at, own=1, borrowed=0, price=0,
        )  # fmt: skip
        return lease_token(job.pk, number, "es")

    def now_us(self) -> int:
        return to_us(read_clock(self.pool.pk).pool_at)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[FakeStage]:
    with override_settings(FAKE_ENGINE=str(tmp_path)):
        yield FakeStage(tmp_path)


class TestFakeExecutor(ExecutorContract, ReconcileContract, FaultyExecutorContract):
    """The fake executor runs all three suites."""


class TestFakeEngine:
    """Faults of the fake engine, in addition to those of every executor."""

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_lost_answers_start_nothing_twice(self, stage: FakeStage, lost: int) -> None:
        token = stage.lease(runs_s=60)
        stage.engine.lose_answers(lost)
        for _ in range(lost):
            with pytest.raises(ExecutorError, match="no answer"):
                stage.launch(token)
        (report,) = stage.launch(token)
        assert report.state is RUNNING
        assert stage.engine.submissions == [token]

    def test_reused_id_stops_correct_job(self, stage: FakeStage) -> None:
        old = stage.lease(runs_s=60)
        stage.launch(old)
        stage.over(old)
        new = stage.lease(runs_s=60)
        stage.launch(new)
        assert [job.id for job in stage.engine.jobs()] == [1], "the id of the first"
        stage.stop(old)
        stage.executor.forget([old])
        assert stage.reports()[new].state is RUNNING

    def test_forgotten_jobs_are_not_started_again(self, stage: FakeStage) -> None:
        token = stage.lease(runs_s=60)
        stage.launch(token)
        stage.engine.forget_everything()
        (late,) = stage.launch(token)
        assert late.state is STOPPED
        assert stage.engine.submissions == [token]
