"""Jobs of tenants that run as Unix users of their own, on a real cluster whose daemons are root."""

from __future__ import annotations

import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors import ExecutorError, Launch, ReportState, token_job
from scheduling.engine.executors.shim.files import lease_folder
from scheduling.engine.executors.slurm.commands import Slurm, is_over, job_name
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.models import Job, Lease, Pool
from tenants.services.tenants import create_tenant
from tests.integration.slurm_world import SlurmWorld
from tests.integration.test_slurm_check import check
from tests.slurm import require_slurm
from tests.tools import eventually
from tests.unix_users import NAMES, PORTAL, common_python, open_folder, require_users

pytestmark = pytest.mark.usefixtures("committed_db")

ANN, BEN, REST = NAMES
AS_ROOT = ("runuser", "-u", "{user}", "--")
# Says who it is, and when asked to stop keeps how far it came, as jobs do.
SAVES = """
import json, os, signal, sys, time
rank = os.environ.get("RANK", "0")
job = os.environ["EVENSHARE_JOB_DIR"]
saved = f"{job}/saved-{rank}"
begun = int(open(saved).read()) if os.path.exists(saved) else 0
def checkpoint(*_):
    open(saved + ".new", "w").write(str(begun + 1))
    os.replace(saved + ".new", saved)
    sys.exit(99)
signal.signal(signal.SIGUSR1, checkpoint)
if rank == "0":
    open(job + "/.progress.new", "w").write(json.dumps({"step": begun}))
    os.replace(job + "/.progress.new", os.environ["EVENSHARE_PROGRESS"])
print(f"rank {rank} is {os.getuid()}:{os.getgid()} and begins at {begun}", flush=True)
time.sleep(6000)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """A cluster that every user can reach."""
    require_slurm()
    require_users()
    with (
        open_folder() as folder,
        open_folder() as sockets,
        SlurmCluster(folder / "slurm", sockets=sockets) as cluster,
    ):
        yield cluster


class UsersWorld(SlurmWorld):
    """Tenants `a` and `b` with a user each, and `c` with none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for swatch, slug in enumerate("bc", 1):
            self.lab.tenants[slug] = create_tenant(
                slug=slug, name=slug, initials=slug.upper(), swatch=swatch, book=self.lab.pool.book
            )
        self.set(users={"a": ANN, "b": BEN}, submit_as=AS_ROOT, python=common_python())

    def set(self, **options: object) -> None:
        """Change options of the pool."""
        pool = Pool.objects.get(pk=self.lab.pool.pk)
        Pool.objects.filter(pk=pool.pk).update(
            executor_options={**pool.executor_options, **options}
        )

    def of(self, tenant: str, *argv: str, gpus: tuple[int, ...] = (1,)) -> str:
        """Make a lease of a tenant's job."""
        job = self.lab.submit(tenant, sum(gpus), 60, command=list(argv))
        return self.lease(job=job, gpus=gpus)

    def again(self, token: str, gpus: tuple[int, ...] = (1,)) -> str:
        """Record a lease's end, and make the next one of its job."""
        job = Job.objects.get(pk=token_job(token))
        Lease.objects.filter(job=job).update(
            state="ended", ended_at=job.submitted_at, started_at=job.submitted_at
        )
        self.executor.forget([token])
        return self.lease(job=job, gpus=gpus)

    def job(self, token: str) -> Path:
        return self.folder(token).parents[1]

    def close(self) -> None:
        self.slurm.run("scancel", f"--partition={self.slurm.partition}")
        super().close()


@pytest.fixture
def world(cluster: SlurmCluster) -> Iterator[UsersWorld]:
    with open_folder() as folder, override_settings(LOCAL_ROOT=str(folder / "jobs")):
        world = UsersWorld(folder / "jobs", cluster)
        try:
            yield world
        finally:
            world.close()


def uid(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def ids(name: str) -> str:
    entry = pwd.getpwnam(name)
    return f"{entry.pw_uid}:{entry.pw_gid}"


class TestAJob:
    def test_runs_as_the_user_of_its_tenant(self, world: UsersWorld) -> None:
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

    @pytest.mark.parametrize("gpus", [(1,), (2, 2), (3, 1)])
    def test_checkpoints_and_goes_on(self, world: UsersWorld, gpus: tuple[int, ...]) -> None:
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

    def test_cannot_see_another_tenants(self, world: UsersWorld) -> None:
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

    def test_cannot_have_the_portal_write_elsewhere(self, world: UsersWorld) -> None:
        """It replaces nothing that leads the portal to another tenant's folder."""
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
    """Submit a job as a user that says it is a lease's."""
    done = subprocess.run(
        [
            "runuser", "-u", name, "--", "sbatch", "--parsable", "--output=/dev/null", "--chdir=/",
            f"--partition={world.slurm.partition}", f"--comment={token}",
            f"--job-name={job_name(token)}", "--wrap", "sleep 600",
        ],
        env=world.slurm.environment, capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    return int(done.stdout)


class TestAJobThatSaysItIsAnotherTenants:
    def test_before_that_starts_is_not_taken_for_it(self, world: UsersWorld) -> None:
        token = world.of("b", "/bin/sh", "-c", "id -u; sleep 6000")
        forged = forge(world, ANN, token)
        assert world.executor._queue(world.tools) == {}
        world.launch(token)
        world.says(token, str(uid(BEN)))
        assert world.executor._queue(world.tools)[token].job_id != forged

    def test_while_that_runs_changes_nothing(self, world: UsersWorld) -> None:
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

    def test_of_the_same_user_counts(self, world: UsersWorld) -> None:
        """The other side of the same line: it is the user that decides."""
        token = world.of("b", "/bin/sh", "-c", "echo ready; exit 0")
        world.launch(token)
        world.ended(token)
        forged = forge(world, BEN, token)
        eventually(lambda: world.executor._queue(world.tools)[token].job_id == forged)


class TestATenantWithoutAUser:
    def test_is_refused_and_holds_up_nobody(self, world: UsersWorld) -> None:
        token = world.of("c", "true")
        other = world.of("a", "true")
        world.launch(token, other)
        assert world.ended(token).state is ReportState.STOPPED
        assert "the tenant c has no Unix user" in world.log(token)
        assert world.ended(other).exit_code == 0
        assert world.folder(token).stat().st_mode & 0o777 == 0o700

    def test_has_that_of_all_others(self, world: UsersWorld) -> None:
        world.set(users={"a": ANN, "*": REST})
        token = world.of("c", "id", "-u")
        world.launch(token)
        assert world.ended(token).exit_code == 0
        assert world.log(token).strip() == str(uid(REST))


def sudo_that_asks() -> list[str]:
    """The real one, as a user that no line of sudoers names."""
    if shutil.which("sudo") is None:
        return ["sh", "-c", "echo sudo: a password is required >&2; exit 1", "{user}"]
    mail = pwd.getpwnam(PORTAL)
    become = ["setpriv", f"--reuid={mail.pw_uid}", f"--regid={mail.pw_gid}", "--clear-groups"]
    return [*become, "sudo", "-n", "-u", "{user}", "--"]


class TestAPrefixThatFails:
    @pytest.mark.parametrize(
        ("prefix", "why"),
        [
            (None, "password is required"),
            (["true", "{user}"], "answered ''"),
            (["false", "{user}"], "answered ''"),
            (["echo", "{user}"], "answered"),
            (["/nowhere/sudo", "{user}"], "/nowhere/sudo is not installed here"),
            (["runuser", "-u", "no-such-user", "--", "{user}"], "no-such-user"),
        ],
    )
    def test_ends_the_lease_and_says_why(
        self, world: UsersWorld, prefix: list[str] | None, why: str
    ) -> None:
        world.set(submit_as=prefix or sudo_that_asks())
        before = world.slurm.run("squeue", "--states=all", "--format=%i")
        token = world.of("a", "true")
        for _ in range(2):
            world.executor.launch([Launch(token, token_job(token), world.now_us())])
        assert world.ended(token).state is ReportState.STOPPED
        said = world.log(token)
        assert f"Slurm does not run this: nothing can be submitted as {ANN}: " in said
        assert why in said
        assert said.count("Slurm does not run this") == 1
        assert world.slurm.run("squeue", "--states=all", "--format=%i") == before

    def test_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scheduling.engine.executors.slurm.commands.CALL_S", 0.2)
        options = SlurmOptions(partition="gpu", submit_as=("sleep", "{user}"))
        with pytest.raises(ExecutorError, match="did not answer within"):
            Slurm(options).run_as("6000", "6000")

    def test_is_not_blamed_for_what_slurm_refuses(self, world: UsersWorld) -> None:
        world.set(gres_types={"a100": "h100"})
        token = world.of("a", "true")
        world.launch(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert "Slurm does not run this: sbatch: error: " in world.log(token)
        assert "nothing can be submitted" not in world.log(token)


class TestAChangeOfUsers:
    def test_refuses_a_job_whose_files_are_the_former_users(self, world: UsersWorld) -> None:
        token = world.of("a", common_python(), "-c", SAVES)
        world.launch(token)
        world.says(token, "begins at 0")
        world.set(users={"a": REST})
        # It goes on as whom it was submitted, and is asked to end.
        assert world.executor._queue(world.tools)[token].state == "RUNNING"
        world.stop(token)
        assert world.ended(token).state is ReportState.STOPPED
        later = world.again(token)
        world.launch(later)
        assert world.ended(later).state is ReportState.STOPPED
        assert "(saved-0) are of another user" in world.log(later)
        for path in (world.job(token) / "saved-0", world.job(token) / "progress.json"):
            shutil.chown(path, REST)
        last = world.again(later)
        world.launch(last)
        world.says(last, f"is {ids(REST)} and begins at 1")

    def test_lets_jobs_of_the_portals_user_end(self, world: UsersWorld) -> None:
        world.set(users={})
        token = world.of("a", "/bin/sh", "-c", "id -u; sleep 6000")
        world.launch(token)
        world.says(token, "0")
        assert world.job(token).stat().st_mode & 0o777 == 0o700
        world.set(users={"a": ANN})
        world.stop(token, grace_s=0.5)
        assert world.ended(token).state is ReportState.STOPPED
        later = world.again(token)
        world.launch(later)
        world.says(later, str(uid(ANN)))

    def test_back_to_none_lets_jobs_of_users_end(self, world: UsersWorld) -> None:
        token = world.of("a", "/bin/sh", "-c", "id -u; sleep 6000")
        world.launch(token)
        world.says(token, str(uid(ANN)))
        world.set(users={})
        world.stop(token, grace_s=0.5)
        assert world.ended(token).state is ReportState.STOPPED
        queue = world.executor._queue(world.tools)
        eventually(lambda: is_over(world.executor._queue(world.tools)[token].state))
        assert token in queue
        later = world.again(token)
        world.launch(later)
        world.says(later, "0")
        assert world.job(token).stat().st_mode & 0o777 == 0o700


class TestWhatAJobsUserWritesForThePortal:
    def test_gives_it_no_longer_grace(
        self, world: UsersWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduling.engine.executors.slurm.executor.CUT_OFF_S", 0.5)
        forged = """trap '' USR1 TERM; echo '{"grace_s": 1e9}' > leases/1/stop; echo ready"""
        token = world.of("a", "/bin/sh", "-c", f"{forged}; while :; do sleep 1; done")
        world.launch(token)
        world.says(token, "ready")
        world.stop(token, grace_s=0.5)
        assert world.ended(token).state is ReportState.STOPPED

    def test_has_no_file_of_others_written_over(self, world: UsersWorld) -> None:
        """Where links to files of others may be made (fs.protected_hardlinks=0)."""
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


class TestAJobThatSeemsOver:
    def test_is_cancelled_as_another_users(
        self, world: UsersWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduling.engine.executors.slurm.executor.CUT_OFF_S", 0.5)
        forged = '{"code": 0, "started_us": 1, "ended_us": 2}'
        token = world.of("a", "/bin/sh", "-c", f"echo '{forged}' > leases/1/exit.json; sleep 6000")
        world.launch(token)
        assert world.ended(token).state is ReportState.FINISHED
        world.executor.forget([token])

        def over() -> bool:
            world.listed()
            return is_over(world.executor._queue(world.tools)[token].state)

        eventually(over)


class TestTheCheck:
    def test_tries_a_job_as_each_user(self, world: UsersWorld) -> None:
        text, status = check(world.lab.pool.name, "--run", "--node", "node-1")
        for name in (ANN, BEN):
            assert f"ok       user {name}: has a group with the portal alone" in text
            assert (
                f"ok       trial on node-1 as {name}: reads and writes the folder of jobs" in text
            )
        assert "AllocNodes: ALL" in text
        assert status == 0, text

    def test_says_that_a_user_may_not_use_the_partition(self, world: UsersWorld) -> None:
        world.slurm.run("scontrol", "update", "PartitionName=gpu", "AllowGroups=root")
        try:
            text, status = check(world.lab.pool.name)
        finally:
            world.slurm.run("scontrol", "update", "PartitionName=gpu", "AllowGroups=ALL")
        assert f"error    user {ANN}: nothing can be submitted as it: " in text
        assert status == 1

    def test_names_what_is_wrong_with_a_user(self, world: UsersWorld) -> None:
        world.set(users={"a": ANN, "b": "no-such-user"}, submit_as=sudo_that_asks())
        world.root.parent.chmod(0o700)
        text, status = check(world.lab.pool.name)
        assert f"error    user {ANN}: cannot pass {world.root.parent}" in text
        assert f"error    user {ANN}: nothing can be submitted as it: sudo: a password" in text
        assert "error    user no-such-user: there is no Unix user no-such-user" in text
        assert status == 1

    def test_counts_what_a_user_submits_by_itself_as_anothers(self, world: UsersWorld) -> None:
        subprocess.run(
            ["runuser", "-u", ANN, "--", "sbatch", "--output=/dev/null", "--chdir=/",
             f"--partition={world.slurm.partition}", "--wrap", "sleep 600"],
            env=world.slurm.environment, capture_output=True, check=True, cwd="/",
        )  # fmt: skip
        token = world.of("b", "/bin/sh", "-c", "sleep 6000")
        world.launch(token)
        text, _ = check(world.lab.pool.name)
        assert f"error    jobs of others: {ANN} (1)" in text


class TestAFolderOfAJob:
    def test_is_the_portals_with_the_users_group(self, world: UsersWorld) -> None:
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
