"""Test the usage of real processes on this machine, from the shim to the chart's points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.clock import read_clock, wall_now
from scheduling.engine.executors.base import token_job
from scheduling.engine.executors.local_files import read_usage
from scheduling.engine.executors.local_usage import GpuState, parse_usage
from scheduling.engine.idle_gpus import read_idle
from scheduling.models import IdleReading, Job, Lease
from scheduling.services.usage import JobUsage, job_usage, newest_leases
from tests.integration.local_world import LocalWorld, local_world
from tests.tools import eventually
from tests.unit.scheduling.shim_stage import END, fake_tool

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc"),
]

BUSY = f'{sys.executable} -S -c "import time\nwhile time.process_time() < 0.4: pass"'


@pytest.fixture
def world(tmp_path: Path, settings: Any) -> Iterator[LocalWorld]:
    settings.LOCAL_USAGE_EVERY_S = 0.1
    with local_world(tmp_path / "jobs") as made:
        yield made


def used(token: str) -> JobUsage:
    """Record the start of the lease, and return the data of the page."""
    job = Job.objects.select_related("pool").get(pk=token_job(token))
    clock = read_clock(job.pool_id)
    Lease.objects.filter(job=job, started_at=None).update(started_at=clock.pool_at)
    # The start is recorded late here. Points in the future are left out, so the test uses a later
    # time.
    later = clock.pool_at.replace(year=clock.pool_at.year + 1)
    return job_usage(job, newest_leases(job), now=later, scale=clock.scale)


def counted(world: LocalWorld) -> IdleReading:
    """Read the samples of the only lease; return what was counted of them so far."""
    IdleReading.objects.update(read_at=wall_now() - timedelta(hours=1))
    read_idle(world.lab.pool, seconds=60)
    return IdleReading.objects.get()


class TestLocalJob:
    def test_counts_all_cpu_time_of_job(self, world: LocalWorld) -> None:
        token = world.shell(f"sh -c '{BUSY}'; {BUSY}")
        world.ended(token)
        usage = used(token)
        spent = sum(p.cores * (p.end_us - p.begin_us) / 1e6 for p in usage.points)
        assert 0.8 <= spent < 2.0
        assert usage.leases[0].gpu_state is GpuState.NONE

    def test_samples_only_gpus_of_its_lease(
        self, world: LocalWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = "; ".join(f'echo "{n}, GPU-{n}, {10 * n}, {100 * n}, 8000"' for n in range(8))
        tool = fake_tool(tmp_path / "bin", rows)
        monkeypatch.setenv("PATH", f"{tool}:/usr/bin:/bin")
        world.lab.gpu_type.name = "v100"
        world.lab.gpu_type.save()
        idle = world.lease("true")
        token = world.shell(f"cd $HOME; {END}")
        assert idle != token
        eventually(lambda: used(token).leases[0].gpu_state is GpuState.OK)
        (point, *_) = used(token).points
        # The second slot of the node.
        assert (point.busy, point.gpu_peak_bytes) == (100, 100 * 2**20)
        (world.job_folder(token) / "end").touch()
        world.ended(token)

    def test_idle_gpu_time_of_a_lease_is_what_its_samples_say(
        self, world: LocalWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = "; ".join(f'echo "{n}, GPU-{n}, {10 * n}, 100, 8000"' for n in range(8))
        tool = fake_tool(tmp_path / "bin", rows)
        monkeypatch.setenv("PATH", f"{tool}:/usr/bin:/bin")
        world.lab.gpu_type.name = "v100"
        world.lab.gpu_type.save()
        token = world.shell(f"cd $HOME; {END}")  # on the first slot, whose GPU is at 0 %
        job_id = token_job(token)
        began = read_clock(world.lab.pool.pk).pool_at - timedelta(minutes=1)
        Lease.objects.filter(job=job_id).update(started_at=began, state="running")
        eventually(lambda: counted(world).idle_us > 0)
        (world.job_folder(token) / "end").touch()
        world.ended(token)
        now = read_clock(world.lab.pool.pk).pool_at
        Lease.objects.filter(job=job_id).update(state="ended", ended_at=now)
        usage = parse_usage(read_usage(job_id, 1, 0), rank=0).usage
        assert usage is not None
        spans = zip((0, *(row.end_ms for row in usage.rows)), usage.rows, strict=False)
        known_ms = sum(row.end_ms - begin for begin, row in spans if row.busy == (0,))
        reading = counted(world)
        assert reading.is_over
        assert (reading.known_us, reading.idle_us) == (known_ms * 1000, known_ms * 1000)

    def test_usage_is_separate_for_each_lease(self, world: LocalWorld) -> None:
        token = world.shell(BUSY)
        world.ended(token)
        first = used(token)
        job = Job.objects.get(pk=token_job(token))
        now = read_clock(job.pool_id).pool_at
        Lease.objects.filter(job=job).update(state="ended", ended_at=now)
        again = world.lease(job=job)
        world.launch(again)
        world.ended(again)
        usage = used(token)
        assert [lease.number for lease in usage.leases] == [1, 2]
        assert first.leases[0].number == 1
        assert usage.leases[1].mean is not None
