"""Test a tenant's jobs that falsify data to run without charge or at another tenant's cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import Launch, ReportState, token_job
from scheduling.engine.executors.slurm import executor
from scheduling.engine.executors.slurm.commands import SlurmJob, is_over, job_name
from tests.integration.slurm_users_world import UsersWorld, users_cluster, users_world
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")

RUNS = "while :; do sleep 1; done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with users_cluster() as cluster:
        yield cluster


@pytest.fixture
def world(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[UsersWorld]:
    monkeypatch.setattr(executor.SlurmExecutor, "cut_off_s", 0.5)
    with users_world(cluster) as world:
        yield world


def begun(world: UsersWorld, script: str) -> tuple[str, int]:
    """Launch a job whose shell reports when it has changed its data; return its token and id."""
    token = world.of("a", "/bin/sh", "-c", script)
    world.executor.launch([Launch(token, token_job(token), world.now_us())])
    eventually((world.job(token) / "done").exists)
    job_id = world.executor._submitted_id(token)
    assert job_id is not None
    return token, job_id


def job_of(world: UsersWorld, job_id: int) -> SlurmJob:
    (found,) = (job for job, _ in world.tools.jobs() if job.job_id == job_id)
    return found


def is_ended(world: UsersWorld, job_id: int) -> bool:
    """Poll the pool as a round does, and return whether Slurm has ended a job after that."""
    world.listed()
    return is_over(job_of(world, job_id).state)


class TestHostileJob:
    def test_is_ended_if_it_removes_its_lease_in_slurm(self, world: UsersWorld) -> None:
        """Otherwise the job could not be stopped, and its running lease would count as lost."""
        other = world.of("b", "/bin/sh", "-c", RUNS)
        world.launch(other)
        drops = "scontrol update JobId=$SLURM_JOB_ID Comment=mine; touch done; " + RUNS
        token, job_id = begun(world, drops)
        assert job_of(world, job_id).token == ""
        eventually(lambda: is_ended(world, job_id))
        assert world.ended(token).state is ReportState.STOPPED
        assert world.listed()[other].state is ReportState.RUNNING

    def test_is_ended_if_it_claims_other_lease_in_slurm(self, world: UsersWorld) -> None:
        other = world.of("a", "/bin/sh", "-c", RUNS)
        world.launch(other)
        named = f"JobName={job_name(other)} Comment={other}"
        takes = f"scontrol update JobId=$SLURM_JOB_ID {named}; touch done; "
        _, job_id = begun(world, takes + RUNS)
        assert job_of(world, job_id).token == other
        eventually(lambda: is_ended(world, job_id))

    def test_is_ended_if_it_hides_its_start(
        self, world: UsersWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the job would count as starting for ever, without charge."""
        monkeypatch.setattr(executor, "NO_SHIM_S", 1.0)
        hides = (
            "until grep -q started_us leases/1/shim.json; do sleep 0.1; done;"
            """ sed 's/"started_us": [0-9]*, *//; s/, *"started_us": [0-9]*//' leases/1/shim.json"""
            " > leases/1/new && mv leases/1/new leases/1/shim.json; touch done; "
        )
        token, job_id = begun(world, hides + RUNS)
        assert "started_us" not in (world.executor._claim(token) or {})
        eventually(lambda: is_ended(world, job_id))

    def test_is_ended_if_it_forges_end_and_file_times(self, world: UsersWorld) -> None:
        forged = """echo '{"code": 0, "started_us": 1, "ended_us": 2}' > leases/1/exit.json"""
        dated = "touch -d 2100-01-01 leases/1/exit.json; touch done; "
        token, job_id = begun(world, f"{forged}; {dated}{RUNS}")
        assert world.ended(token).state is ReportState.STOPPED
        assert is_over(job_of(world, job_id).state)

    @pytest.mark.parametrize(
        "said",
        [
            '"code": 4294967296, "ended_us": 2',
            '"code": true, "ended_us": 2',
            '"signal": 4294967296, "ended_us": 2',
            '"code": 0, "ended_us": 9007199254740990',
        ],
    )
    def test_counts_as_ended_if_its_reported_end_is_invalid(
        self, world: UsersWorld, said: str
    ) -> None:
        """Otherwise the job would hold its GPUs for ever."""
        ends = f"""echo '{{"started_us": 1, {said}}}' > leases/1/exit.json; touch done"""
        token, _ = begun(world, f"{ends}; kill -9 $PPID")
        report = world.ended(token)
        assert report.exit_code in (0, 255)
        assert report.ended_us is not None
        assert report.ended_us <= world.now_us()

    def test_is_killed_despite_forged_grace(self, world: UsersWorld) -> None:
        digits = "1" + "0" * 400
        stops = f"""echo '{{"grace_s": {digits}}}' > leases/1/stop; touch done; """
        token, job_id = begun(world, f"kill -STOP $PPID; {stops}{RUNS}")
        other = world.of("b", "true")
        world.launch(other)
        assert world.ended(other).exit_code == 0
        world.stop(token, grace_s=0.1)
        eventually(lambda: is_ended(world, job_id))
