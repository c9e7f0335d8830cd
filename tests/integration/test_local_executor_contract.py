"""Test the executors of this repository against the contract."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from evenshare_core.domain.instants import to_us
from scheduling.engine.executors.base import executor_for, lease_token, token_job
from scheduling.models import Job, Lease, VirtualWork
from tests.factories import cluster
from tests.integration.executor_contract import ExecutorContract, Stage
from tests.integration.executor_faults import FaultyExecutorContract
from tests.integration.local_world import LocalWorld, local_world
from tests.integration.reconcile_contract import ReconcileContract

pytestmark = pytest.mark.usefixtures("committed_db")


class VirtualStage(Stage):
    """A stage with a virtual clock, which the test moves."""

    def __init__(self) -> None:
        self.lab = cluster({"a": 8})
        self.pool = self.lab.pool
        self.executor = executor_for("virtual")

    def lease(self, *, runs_s: float, exit_code: int = 0, after: str = "") -> str:
        job = Job.objects.get(pk=token_job(after)) if after else self.lab.submit("a", 1, 1)
        number = job.leases.count() + 1
        Job.objects.filter(pk=job.pk).update(state="running")
        VirtualWork.objects.filter(job=job).update(
            duration_us=int(runs_s * 1_000_000), exit_code=exit_code
        )
        Lease.objects.create(
            pool=self.pool, tenant=job.tenant, job=job, gpu_type=self.lab.gpu_type, number=number,
            state="launching", gpus=1, placement=[], granted_round=1, granted_at=self.lab.at,
            expires_at=self.lab.at, own=1, borrowed=0, price=0,
        )  # fmt: skip
        return lease_token(job.pk, number, "es")

    def now_us(self) -> int:
        return to_us(self.lab.at)

    def wait(self, seconds: float) -> None:
        self.lab.at += timedelta(seconds=seconds)


class LocalStage(Stage):
    """A stage with real processes in real time."""

    def __init__(self, world: LocalWorld) -> None:
        self.world = world
        self.pool = world.lab.pool
        self.executor = executor_for("local")

    def lease(self, *, runs_s: float, exit_code: int = 0, after: str = "") -> str:
        job = Job.objects.get(pk=token_job(after)) if after else None
        return self.world.lease("/bin/sh", "-c", f"sleep {runs_s}; exit {exit_code}", job=job)

    def now_us(self) -> int:
        return self.world.now_us()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class TestVirtualExecutor(ExecutorContract, ReconcileContract, FaultyExecutorContract):
    @pytest.fixture
    def stage(self) -> Stage:
        return VirtualStage()


@pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc")
class TestLocalExecutor(ExecutorContract, ReconcileContract, FaultyExecutorContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[Stage]:
        with local_world(tmp_path / "jobs") as world:
            yield LocalStage(world)
