"""Test the usage of a gang on two nodes of a real Slurm cluster: each rank samples its own node."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import ReportState, token_job
from scheduling.engine.executors.local_usage import GpuState
from scheduling.models import Job, Lease, LeaseSlot
from scheduling.services.usage import JobUsage, job_usage, newest_leases
from tests.integration.slurm_world import SlurmWorld, slurm_world
from tests.tools import eventually
from tests.unit.scheduling.shim_stage import END, fake_tool

pytestmark = pytest.mark.usefixtures("committed_db")

BUSY = f'{sys.executable} -S -c "import time\nwhile time.process_time() < 0.4: pass"'
ROWS = "; ".join(f'echo "{n}, GPU-{n}, {20 * n}, {100 * n}, 8000"' for n in range(4))
UNTIL = f'cd "$EVENSHARE_JOB_DIR"; {END}'


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster, settings: Any) -> Iterator[SlurmWorld]:
    settings.LOCAL_USAGE_EVERY_S = 0.1
    tool = fake_tool(tmp_path / "bin", ROWS)
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        pool = made.lab.pool
        pool.executor_options = {**pool.executor_options, "path": f"{tool}:/usr/bin:/bin"}
        pool.save(update_fields=["executor_options"])
        yield made


def used(token: str) -> JobUsage:
    """Record the lease's start and nodes, and return the data of the page."""
    job = Job.objects.select_related("pool").get(pk=token_job(token))
    clock = read_clock(job.pool_id)
    lease = Lease.objects.get(job=job)
    nodes = Counter(LeaseSlot.objects.filter(lease=lease).values_list("node", flat=True))
    Lease.objects.filter(pk=lease.pk).update(
        started_at=clock.pool_at, placement=[[node, gpus] for node, gpus in nodes.items()]
    )
    later = clock.pool_at.replace(year=clock.pool_at.year + 1)
    return job_usage(job, newest_leases(job), now=later, scale=clock.scale)


class TestSlurmJob:
    def test_usage_on_one_node_has_assigned_gpus(self, world: SlurmWorld) -> None:
        token = world.shell(f"{BUSY}; {UNTIL}", gpus=(2,))
        eventually(lambda: used(token).leases[0].gpu_state is GpuState.OK)
        (world.folder(token).parents[1] / "end").touch()
        assert world.ended(token).state is ReportState.FINISHED
        (lease,) = used(token).leases
        assert (lease.nodes, lease.of_nodes, lease.gpu_bytes) == (1, 1, 8000 * 2**20)
        assert lease.mean is not None
        assert lease.mean.busy_low is not None

    def test_usage_over_two_nodes_is_sum_of_ranks(self, world: SlurmWorld) -> None:
        token = world.shell(f"{BUSY}; {UNTIL}", gpus=(4, 4))

        def both_say() -> bool:
            (lease,) = used(token).leases
            return lease.nodes == 2 and lease.gpu_state is GpuState.OK and bool(lease.mean)

        eventually(both_say)
        (world.folder(token).parents[1] / "end").touch()
        assert world.ended(token).state is ReportState.FINISHED
        usage = used(token)
        spent = sum(p.cores * (p.end_us - p.begin_us) / 1e6 for p in usage.points)
        # Two programs run for 0.4 s each. The CPU time of srun and of the leader does not count.
        assert 0.8 <= spent < 2.0
        (lease,) = usage.leases
        assert (lease.nodes, lease.of_nodes) == (2, 2)
        known = [point for point in usage.points if point.busy is not None]
        # The four GPUs of each node have a utilisation of 0, 20, 40 and 60 %.
        assert (known[0].busy, known[0].busy_low) == (300, 0)
        assert known[0].gpu_peak_bytes == 300 * 2**20
