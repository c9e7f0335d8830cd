"""Test the contract of executors for `slurm` on a real cluster, with its tools and slurmrestd."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenshare_core.units import SECOND_US
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import Report, token_job
from scheduling.models import Job
from tests.integration.executor_contract import CallsContract, ExecutorContract, Stage
from tests.integration.executor_faults import FaultyExecutorContract
from tests.integration.reconcile_contract import ReconcileContract
from tests.integration.slurm_world import SlurmWorld, slurm_world
from tests.slurm_restd import RealRestd

pytestmark = pytest.mark.usefixtures("committed_db")


class SlurmStage(Stage):
    """Real jobs of a real cluster, in real time. Slurm's own times are whole seconds."""

    grain_us = SECOND_US

    def __init__(self, world: SlurmWorld) -> None:
        self.world = world
        self.pool = world.lab.pool
        self.executor = world.executor

    def lease(self, *, runs_s: float, exit_code: int = 0, after: str = "") -> str:
        job = Job.objects.get(pk=token_job(after)) if after else None
        return self.world.lease("/bin/sh", "-c", f"sleep {runs_s}; exit {exit_code}", job=job)

    def launch(self, *tokens: str) -> list[Report]:
        return self.world.launch(*tokens)

    def now_us(self) -> int:
        return self.world.now_us()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class TestSlurmExecutor(ExecutorContract, ReconcileContract, FaultyExecutorContract):
    @pytest.fixture
    def stage(self, tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[Stage]:
        with slurm_world(tmp_path / "jobs", slurm_cluster) as world:
            yield SlurmStage(world)


class TestSlurmExecutorOverSlurmrestd(CallsContract):
    """Only the basic contract runs; the interface changes neither call orders nor wrong reports."""

    @pytest.fixture
    def stage(self, tmp_path: Path, slurm_restd: RealRestd) -> Iterator[Stage]:
        with slurm_world(tmp_path / "jobs", slurm_restd.cluster, slurm_restd.options) as world:
            yield SlurmStage(world)
