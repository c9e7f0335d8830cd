"""Test tenants' jobs as separate Unix users, on a real cluster whose daemons run as root."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import ReportState, token_job
from scheduling.engine.executors.local_files import read_usage
from scheduling.engine.executors.local_usage import parse_usage
from scheduling.engine.executors.shim.files import lease_folder
from scheduling.engine.executors.slurm.commands import is_over, job_name
from scheduling.engine.executors.slurm.executor import SlurmExecutor
from scheduling.models import Lease
from tests.integration.slurm_users_world import (
    ANN,
    BEN,
    SAVES,
    UsersWorld,
    ids,
    uid,
    users_cluster,
    users_world,
)
from tests.tools import eventually
from tests.unix_users import common_python

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with users_cluster() as cluster:
        yield cluster


@pytest.fixture
def world(cluster: SlurmCluster) -> Iterator[UsersWorld]:
    with users_world(cluster) as world:
        yield world


class TestJob:
    def test_runs_as_user_of_its_tenant(self, world: UsersWorld) -> None:
        say = 'echo "$(id -u):$(id -g)"; umask; cd; pwd; touch mine; exit 3'
        tokens = [world.of(tenant, "/bin/sh", "-c", say) for tenant in "ab"]
        world.launch(*tokens)
        for token, name in zip(tokens, (ANN, BEN), strict=True):
            report = world.ended(token)
            assert (report.state, report.exit_code) == (ReportState.FINISHED, 3)
            assert world.log(token).splitlines() == [ids(name), "0007", str(world.job(token))]
            assert (world.job(token) / "mine").stat().st_uid == uid(name)
            assert (world.folder(token) / "exit.json").stat().st_uid == uid(name)
            assert world.job(token).stat().st_uid == 0

    @pytest.mark.parametrize("gpus", [(1,), (3, 1)])
    def test_checkpoints_and_resumes(self, world: UsersWorld, gpus: tuple[int, ...]) -> None:
        ranks = range(len(gpus))
        token = world.of("a", common_python(), "-c", SAVES, gpus=gpus)
        world.launch(token)
        world.says(token, *(f"rank {rank} is {ids(ANN)} and begins at 0" for rank in ranks))
        world.stop(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert world.exit(token)["code"] == 99, world.log(token)
        later = world.again(token, gpus)
        world.launch(later)
        world.says(later, *(f"rank {rank} is {ids(ANN)} and begins at 1" for rank in ranks))
        report = eventually(lambda: (one := world.listed()[later]).progress and one)
        assert report
        assert report.progress == {"step": 1}
        world.stop(later)
        assert world.ended(later).state is ReportState.STOPPED
        for rank in ranks:
            file = world.folder(later) / f"usage.{rank}.json"
            assert file.stat().st_uid == uid(ANN)
            assert parse_usage(read_usage(token_job(later), 2, rank), rank=rank).usage is not None

    def test_cannot_read_job_of_other_tenant(self, world: UsersWorld) -> None:
        theirs = world.of("b", "/bin/sh", "-c", "echo secret; echo secret > model; sleep 6000")
        world.launch(theirs)
        world.says(theirs, "secret")
        folder, job = world.folder(theirs), world.job(theirs)
        eventually((job / "model").exists)
        reads = (folder / "spec.json", folder / "out.log", folder / "shim.json", job / "model")
        lists = (world.root, world.root / "active", job, folder)
        writes = (job / "new", folder / "stop", world.root / "new", world.root / "shims" / "new")
        tries = [
            *(f"cat {path} && echo LEAK" for path in reads),
            *(f"ls {path} && echo LEAK" for path in lists),
            *(f"touch {path} && echo LEAK" for path in writes),
            f"kill -0 {(world.executor._claim(theirs) or {})['child']} && echo LEAK",
            *(f"echo x >> {path} && echo LEAK" for path in world.root.glob("shims/*/shim/*.py")),
            "echo tried",
        ]
        token = world.of("a", "/bin/sh", "-c", "; ".join(tries))
        world.launch(token)
        world.ended(token)
        assert "tried" in world.log(token)
        assert "LEAK" not in world.log(token)

    def test_cannot_redirect_writes_of_portal(self, world: UsersWorld) -> None:
        """The job tries to make the portal write into another tenant's folder."""
        theirs = world.of("b", "/bin/sh", "-c", "echo ready; sleep 6000")
        world.launch(theirs)
        tries = (
            f"mv leases l; rm -d leases; ln -sT {world.job(theirs)}/leases leases",
            f"mv leases/1 leases/0; ln -sT {world.folder(theirs)} leases/2",
            "rm -f unix-user uid leases/1/spec.json",
            f"echo {uid(BEN)} {BEN} > unix-user",
            "echo ready; sleep 6000",
        )
        token = world.of("a", "/bin/sh", "-c", "; ".join(tries))
        world.launch(token)
        world.says(token, "ready")
        world.stop(token, grace_s=0.5)
        assert world.ended(token).state is ReportState.STOPPED
        later = world.again(token)
        world.launch(later)
        world.says(later, "ready")
        assert (world.folder(theirs) / "stop").exists() is False
        assert world.job(token).joinpath("leases").is_symlink() is False


def forge(world: UsersWorld, name: str, token: str) -> int:
    """Submit a job as a user, with the claim that it belongs to a lease."""
    done = subprocess.run(
        [
            "runuser", "-u", name, "--", "sbatch", "--parsable", "--output=/dev/null", "--chdir=/",
            f"--partition={world.slurm.partition}", f"--comment={token}",
            f"--job-name={job_name(token)}", "--wrap", "sleep 600",
        ],
        env=world.slurm.environment, capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    return int(done.stdout)


class TestJobWithForgedToken:
    def test_is_ignored_before_real_job_starts(self, world: UsersWorld) -> None:
        token = world.of("b", "/bin/sh", "-c", "id -u; sleep 6000")
        forged = forge(world, ANN, token)
        assert world.executor._queue(world.tools) == {}
        world.launch(token)
        world.says(token, str(uid(BEN)))
        assert world.executor._queue(world.tools)[token].job_id != forged

    def test_is_ignored_while_real_job_runs(self, world: UsersWorld) -> None:
        token = world.of("b", "/bin/sh", "-c", "echo ready; sleep 6000")
        world.launch(token)
        world.says(token, "ready")
        real = world.executor._queue(world.tools)[token].job_id
        forged = forge(world, ANN, token)
        eventually(lambda: str(forged) in world.slurm.run("squeue", "--format=%i"))
        assert world.executor._queue(world.tools)[token].job_id == real
        world.slurm.run("scancel", str(real))
        report = world.ended(token)
        assert report.state is ReportState.STOPPED

    def test_is_accepted_from_same_user(self, world: UsersWorld) -> None:
        """Unlike in the tests above, the user is the right one, so the job is accepted."""
        token = world.of("b", "/bin/sh", "-c", "echo ready; exit 0")
        world.launch(token)
        world.ended(token)
        forged = forge(world, BEN, token)
        eventually(lambda: world.executor._queue(world.tools)[token].job_id == forged)


class TestForgedFiles:
    def test_do_not_extend_grace(self, world: UsersWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SlurmExecutor, "cut_off_s", 0.5)
        forged = """trap '' USR1 TERM; echo '{"grace_s": 1e9}' > leases/1/stop; echo ready"""
        token = world.of("a", "/bin/sh", "-c", f"{forged}; while :; do sleep 1; done")
        world.launch(token)
        world.says(token, "ready")
        world.stop(token, grace_s=0.5)
        assert world.ended(token).state is ReportState.STOPPED

    def test_do_not_overwrite_files_of_others(self, world: UsersWorld) -> None:
        """The kernel may allow hard links to other users' files (fs.protected_hardlinks=0)."""
        token = world.of("a", "true")
        [lease] = Lease.objects.filter(job_id=token_job(token)).select_related(
            "job", "tenant", "pool"
        )
        world.executor._make(token, lease)
        others = world.root / "others"
        others.write_text("precious")
        (world.folder(token) / "out.log").hardlink_to(others)
        world.executor._refuse(token, "of a reason")
        assert others.read_text() == "precious"
        assert "of a reason" in world.log(token)

    @pytest.mark.parametrize("name", ["exit.json", ".asked"])
    def test_folder_in_place_of_file_does_not_block_end(
        self, world: UsersWorld, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """Otherwise no end of any job of the pool could be recorded."""
        monkeypatch.setattr("scheduling.engine.executors.slurm.executor.LAST_WORD_S", 0.0)
        make = f"mkdir -p leases/1/{name}/x; chmod 0 leases/1/{name}"
        token = world.of("a", "/bin/sh", "-c", f"{make}; echo ready; exec sleep 6000")
        other = world.of("b", "/bin/sh", "-c", "sleep 6000")
        world.launch(token, other)
        world.says(token, "ready")
        claim = world.executor._claim(token) or {}
        os.kill(int(claim["pid"]), signal.SIGKILL)
        assert world.ended(token).state is ReportState.STOPPED
        assert world.listed()[other].state is ReportState.RUNNING


class TestJobWithForgedEnd:
    def test_is_cancelled_in_slurm(
        self, world: UsersWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SlurmExecutor, "cut_off_s", 0.5)
        forged = '{"code": 0, "started_us": 1, "ended_us": 2}'
        token = world.of("a", "/bin/sh", "-c", f"echo '{forged}' > leases/1/exit.json; sleep 6000")
        world.launch(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert is_over(world.executor._queue(world.tools)[token].state)


class TestJobFolder:
    def test_belongs_to_portal_with_group_of_user(self, world: UsersWorld) -> None:
        token = world.of("a", "true")
        world.launch(token)
        world.ended(token)
        gid = pwd.getpwnam(ANN).pw_gid
        folder = lease_folder(world.root, token)
        modes = [(one.stat().st_gid, oct(one.stat().st_mode & 0o7777))
                 for one in (folder.parents[1], folder.parent, folder)]  # fmt: skip
        assert modes == [(gid, "0o3770"), (gid, "0o2750"), (gid, "0o3770")]
        assert oct(world.root.stat().st_mode & 0o7777) == "0o711"
        assert oct((world.root / "active").stat().st_mode & 0o7777) == "0o700"
