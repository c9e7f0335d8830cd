"""Test that a job whose lease Slurm accepted and keeps pending is starting until Slurm runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.models import Job, Lease
from scheduling.selectors.jobs.tenant_jobs import JobFilter, active_counts, jobs_page
from tests.integration.slurm_rounds import SlurmRounds, slurm_rounds
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmRounds]:
    with slurm_rounds(tmp_path / "jobs", slurm_cluster, lease_s=600) as made:
        yield made


def _phases(job: Job) -> dict[str, list[str]]:
    """Return the phases in lists of a tenant's jobs, by the filter that selects the jobs."""
    return {
        state: [row.phase for row in jobs_page(job.tenant_id, JobFilter(state=state)).rows]
        for state in ("", "starting", "running")
    }


class TestPendingLease:
    def test_shows_starting_until_slurm_runs_it(self, world: SlurmRounds) -> None:
        for node in world.slurm.nodes:
            world.slurm.run(
                "sbatch", "--output=/dev/null", "--exclusive", f"--nodelist={node.name}",
                "--job-name=held", "--wrap", "sleep 6000",
            )  # fmt: skip
        job = world.submit("a", 1, 60_000)
        eventually(lambda: world.turn() and Lease.objects.filter(job=job).exists())
        world.turn()
        pending = world.slurm.run("squeue", "--noheader", "--states=PENDING", "--format=%j")
        assert f"evenshare-{job.pk}" in pending
        job.refresh_from_db()
        assert job.state == Job.State.RUNNING
        assert _phases(job) == {"": ["starting"], "starting": ["starting"], "running": []}
        counts = active_counts(job.tenant_id)
        assert (counts.starting, counts.running) == (1, 0)
        world.slurm.run("scancel", "--name=held")
        eventually(
            lambda: (
                world.turn() and Lease.objects.filter(job=job, started_at__isnull=False).exists()
            )
        )
        assert _phases(job) == {"": ["running"], "starting": [], "running": ["running"]}
