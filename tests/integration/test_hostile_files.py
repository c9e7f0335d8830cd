"""Test real processes that write random data into their leases' files.

Eight leases run at a time, one of which writes nothing. Each lease ends at the first poll after its
processes ended, at the engine's times. The lease that writes nothing keeps running.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from evenshare_core.units import SECOND_US
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import OVER, ReportState, token_job
from scheduling.engine.executors.slurm.commands import is_over
from scheduling.models import Lease
from tests.hostile import HostileFile, hostile_files
from tests.integration.local_world import LocalWorld, local_world
from tests.integration.slurm_world import SlurmWorld, slurm_world
from tests.patience import few
from tests.tools import eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

AT_ONCE = 7
# About 2,000 files are written in total.
EXAMPLES = 300
RUNS = "exec sleep 6000"  # a single process
UNTIL_ITS_END = "until [ -e end ]; do sleep 0.05; done; exit 3"
FILES = st.lists(hostile_files(), min_size=AT_ONCE, max_size=AT_ONCE)
# No shrinking, because an example takes seconds.
REAL = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.reuse, Phase.generate],
)


def write_and_end(
    world: LocalWorld | SlurmWorld, tokens: list[str], files: list[HostileFile]
) -> int:
    """Change each lease's file while it runs, then end all programs; return when they ended.

    If a job's files contain no start, Slurm's executor counts it as starting for a while.
    """
    try:
        for token, file in zip(tokens, files, strict=True):
            file.write(world.folder(token))
        listed = world.listed()
        for token, file in zip(tokens, files, strict=True):
            # A job may write a stop request for its own shim, which then stops the job.
            if not file.place.startswith(("stop", "until")):
                assert listed[token].state not in OVER, file
    finally:
        ends_us = world.now_us()
        for token in tokens:
            (world.folder(token).parents[1] / "end").touch()
    return ends_us


def forget(world: LocalWorld | SlurmWorld, tokens: list[str]) -> None:
    Lease.objects.filter(job_id__in=map(token_job, tokens)).update(state=Lease.State.ENDED)
    world.executor.forget(tokens)


class TestLocalJob:
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[LocalWorld]:
        with local_world(tmp_path / "jobs") as there:
            yield there

    @settings(REAL, max_examples=few() // 2)
    @given(files=FILES)
    def test_random_files_affect_only_own_job(
        self, world: LocalWorld, files: list[HostileFile]
    ) -> None:
        self.check(world, files)

    @pytest.mark.soak
    @settings(REAL, max_examples=EXAMPLES)
    @given(files=FILES)
    def test_2000_random_files_affect_only_own_job(
        self, world: LocalWorld, files: list[HostileFile]
    ) -> None:
        self.check(world, files)

    def check(self, world: LocalWorld, files: list[HostileFile]) -> None:
        neighbour = world.tokens[0] if world.tokens else world.shell(RUNS)
        eventually(lambda: world.listed()[neighbour].state is ReportState.RUNNING)
        others = set(world.processes())
        before_us = world.now_us()
        tokens = [world.lease("/bin/sh", "-c", UNTIL_ITS_END) for _ in files]
        world.launch(*tokens)
        launched_us = world.now_us()
        ends_us = write_and_end(world, tokens, files)
        eventually(lambda: set(world.processes()) <= others)
        gone_us = world.now_us()
        listed = world.listed()
        assert listed[neighbour].state is ReportState.RUNNING
        for token, file in zip(tokens, files, strict=True):
            report = listed[token]
            assert report.state in OVER, file
            # The job's files may shift the time by up to a second.
            assert before_us <= report.started_us <= launched_us + SECOND_US, file
            assert report.ended_us is not None
            assert report.ended_us <= gone_us + SECOND_US, file
            if not file.place.startswith(("stop", "until")):
                assert report.ended_us >= ends_us, file
        forget(world, tokens)


class TestSlurmJob:
    @pytest.fixture
    def world(self, tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
        with slurm_world(tmp_path / "jobs", slurm_cluster) as there:
            yield there

    @settings(REAL, max_examples=few() // 2)
    @given(files=FILES)
    def test_random_files_affect_only_own_job(
        self, world: SlurmWorld, files: list[HostileFile]
    ) -> None:
        self.check(world, files)

    @pytest.mark.soak
    @settings(REAL, max_examples=EXAMPLES)
    @given(files=FILES)
    def test_2000_random_files_affect_only_own_job(
        self, world: SlurmWorld, files: list[HostileFile]
    ) -> None:
        self.check(world, files)

    def check(self, world: SlurmWorld, files: list[HostileFile]) -> None:
        neighbour = next(iter(world._nodes), "") or world.shell(RUNS)
        tokens = [world.lease("/bin/sh", "-c", UNTIL_ITS_END) for _ in files]
        world.launch(*tokens)
        write_and_end(world, tokens, files)

        def over() -> bool:
            queue = world.tools.queue()
            return all(is_over(queue[token].state) for token in tokens)

        eventually(over)
        queue = world.tools.queue()
        listed = world.listed()
        assert listed[neighbour].state is ReportState.RUNNING
        now_us, now_wall_us = world.now_us(), wall_us()
        for token, file in zip(tokens, files, strict=True):
            report, job = listed[token], queue[token]
            assert report.state in OVER, file
            assert report.ended_us is not None
            assert job.started is not None
            assert job.ended is not None
            ago_us = now_us - now_wall_us
            off_us = report.started_us - (job.started * SECOND_US + ago_us)
            assert -SECOND_US <= off_us <= 2 * SECOND_US, file
            off_us = report.ended_us - (job.ended * SECOND_US + ago_us)
            assert -2 * SECOND_US <= off_us <= 2 * SECOND_US, file
        forget(world, tokens)


def wall_us() -> int:
    return time.time_ns() // 1000
