"""Test `users` and `submit_as` of a pool: tenants without a user, prefixes that fail, changes."""

from __future__ import annotations

import pwd
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from evenshare_core.domain.instants import from_us
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import ExecutorError, Launch, ReportState, token_job
from scheduling.engine.executors.slurm.commands import Slurm, is_over
from scheduling.engine.executors.slurm.options import SlurmOptions
from tests.integration.slurm_users_world import (
    ANN,
    BEN,
    REST,
    SAVES,
    UsersWorld,
    ids,
    uid,
    users_cluster,
    users_world,
)
from tests.integration.test_slurm_check import check
from tests.tools import eventually, require_tool
from tests.unix_users import PORTAL, common_python

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with users_cluster() as cluster:
        yield cluster


@pytest.fixture
def world(cluster: SlurmCluster) -> Iterator[UsersWorld]:
    with users_world(cluster) as world:
        yield world


class TestTenantWithoutUser:
    def test_is_refused_and_does_not_block_others(self, world: UsersWorld) -> None:
        token = world.of("c", "true")
        other = world.of("a", "true")
        world.launch(token, other)
        assert world.ended(token).state is ReportState.STOPPED
        assert "the tenant c has no Unix user" in world.log(token)
        assert world.ended(other).exit_code == 0
        assert world.folder(token).stat().st_mode & 0o777 == 0o700

    def test_uses_fallback_user(self, world: UsersWorld) -> None:
        world.set(users={"a": ANN, "*": REST})
        token = world.of("c", "id", "-u")
        world.launch(token)
        assert world.ended(token).exit_code == 0
        assert world.log(token).strip() == str(uid(REST))


def sudo_that_asks() -> list[str]:
    """Return the real sudo, run by a user that sudoers does not name."""
    require_tool("sudo")
    mail = pwd.getpwnam(PORTAL)
    become = ["setpriv", f"--reuid={mail.pw_uid}", f"--regid={mail.pw_gid}", "--clear-groups"]
    return [*become, "sudo", "-n", "-u", "{user}", "--"]


class TestFailingPrefix:
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
    def test_ends_lease_with_reason(
        self, world: UsersWorld, prefix: list[str] | None, why: str
    ) -> None:
        world.set(submit_as=prefix or sudo_that_asks())
        before = world.slurm.run("squeue", "--states=all", "--format=%i")
        token = world.of("a", "true")
        for _ in range(2):
            world.executor.launch([Launch(token, token_job(token), world.now_us())])
        assert world.ended(token).state is ReportState.STOPPED
        said = world.log(token)
        assert f"Slurm does not run this job: nothing can be submitted as {ANN}: " in said
        assert why in said
        assert said.count("Slurm does not run this") == 1
        assert world.slurm.run("squeue", "--states=all", "--format=%i") == before

    def test_is_given_up_if_it_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scheduling.engine.executors.slurm.commands.CALL_S", 0.2)
        options = SlurmOptions(partition="gpu", submit_as=("sleep", "{user}"))
        with pytest.raises(ExecutorError, match="did not answer within"):
            Slurm(options).run_as("6000", "6000")

    def test_is_not_blamed_for_refusal_by_slurm(self, world: UsersWorld) -> None:
        world.set(gres_types={"a100": "h100"})
        token = world.of("a", "true")
        world.launch(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert "Slurm does not run this job: sbatch: error: " in world.log(token)
        assert "nothing can be submitted" not in world.log(token)


class TestChangeOfUsers:
    def test_rejects_job_with_files_of_former_user(self, world: UsersWorld) -> None:
        token = world.of("a", common_python(), "-c", SAVES)
        world.launch(token)
        world.says(token, "begins at 0")
        world.set(users={"a": REST})
        # The job continues as the user that submitted it, and is asked to stop.
        assert world.executor._queue(world.tools)[token].state == "RUNNING"
        world.stop(token)
        assert world.ended(token).state is ReportState.STOPPED
        later = world.again(token)
        world.launch(later)
        assert world.ended(later).state is ReportState.STOPPED
        assert "(saved-0) do not belong to" in world.log(later)
        for path in (world.job(token) / "saved-0", world.job(token) / "progress.json"):
            shutil.chown(path, REST)
        last = world.again(later)
        world.launch(last)
        world.says(last, f"is {ids(REST)} and begins at 1")

    def test_jobs_of_portal_user_still_end(self, world: UsersWorld) -> None:
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

    def test_jobs_of_former_users_still_end_after_removal(self, world: UsersWorld) -> None:
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


class TestCheck:
    def test_runs_trial_as_each_user(self, world: UsersWorld) -> None:
        text, status = check(world.lab.pool.name, "--run", "--node", "node-1")
        for name in (ANN, BEN):
            assert f"ok       user {name}: shares a group with the portal only" in text
            assert (
                f"ok       trial on node-1 as {name}: reads and writes the folder of jobs" in text
            )
        assert "AllocNodes: ALL" in text
        assert status == 0, text

    def test_reports_user_without_access_to_partition(self, world: UsersWorld) -> None:
        world.slurm.run("scontrol", "update", "PartitionName=gpu", "AllowGroups=root")
        try:
            text, status = check(world.lab.pool.name)
        finally:
            world.slurm.run("scontrol", "update", "PartitionName=gpu", "AllowGroups=ALL")
        assert f"error    user {ANN}: nothing can be submitted as this user: " in text
        assert status == 1

    def test_names_errors_of_user(self, world: UsersWorld) -> None:
        world.set(users={"a": ANN, "b": "no-such-user"}, submit_as=sudo_that_asks())
        world.root.parent.chmod(0o700)
        text, status = check(world.lab.pool.name)
        assert f"error    user {ANN}: cannot pass {world.root.parent}" in text
        assert (
            f"error    user {ANN}: nothing can be submitted as this user: sudo: a password" in text
        )
        assert "error    user no-such-user: there is no Unix user no-such-user" in text
        assert status == 1

    def test_own_jobs_of_user_count_as_others(self, world: UsersWorld) -> None:
        subprocess.run(
            ["runuser", "-u", ANN, "--", "sbatch", "--output=/dev/null", "--chdir=/",
             f"--partition={world.slurm.partition}", "--wrap", "sleep 600"],
            env=world.slurm.environment, capture_output=True, check=True, cwd="/",
        )  # fmt: skip
        token = world.of("b", "/bin/sh", "-c", "sleep 6000")
        world.launch(token)
        text, _ = check(world.lab.pool.name)
        assert f"error    jobs of others: 1 job of {ANN} (by hand)" in text

    def test_names_jobs_running_after_their_lease(self, world: UsersWorld) -> None:
        token = world.of("a", "/bin/sleep", "6000")
        world.launch(token)
        assert "ok       jobs that run on: none" in check(world.lab.pool.name)[0]
        now = from_us(world.now_us())
        world.lab.pool.leases.update(state="ended", started_at=now, ended_at=now)
        text, _ = check(world.lab.pool.name)
        assert "warning  jobs that run on: 1 job of leases that have ended" in text
        assert f"({token})" in text
