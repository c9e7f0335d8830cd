"""Test the `slurm` executor on real Slurm: exact ends, single starts, even if Slurm forgets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import (
    ExecutorError,
    Extension,
    Launch,
    Report,
    ReportState,
    token_job,
)
from scheduling.engine.executors.slurm import commands
from scheduling.engine.executors.slurm.commands import Slurm, is_over, job_name
from scheduling.engine.executors.slurm.executor import SlurmExecutor
from scheduling.engine.executors.slurm.lease_submission import lease_submission
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.models import Job, Pool
from tests.integration.slurm_world import SlurmWorld, own_slurm_world, slurm_world
from tests.slurm import as_made, declare_down, kill_node
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")

FINISHED, STOPPED, RUNNING = ReportState.FINISHED, ReportState.STOPPED, ReportState.RUNNING
CANARIES = {"SECRET_KEY": "canary-key-9b1", "DATABASE_URL": "postgres://canary-user-9b2@/x"}
# The program prints its rank on each node. When it is stopped it saves the rank and exits, to be
# continued later.
CHECKPOINTS = """
import os, signal, sys, time
rank = os.environ.get("RANK", "0")
def checkpoint(*_):
    open(os.environ["EVENSHARE_JOB_DIR"] + "/saved-" + rank, "w").write("yes")
    sys.exit(int(sys.argv[1]))
signal.signal(signal.SIGUSR1, checkpoint)
print("ready", rank, flush=True)
time.sleep(6000)
"""
RANKS = "echo rank $RANK of $WORLD_SIZE has $CUDA_VISIBLE_DEVICES with $EVENSHARE_GPUS_PER_NODE"


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[SlurmWorld]:
    """Yield a world on a cluster that the test may break."""
    with own_slurm_world(tmp_path) as made:
        yield made


@pytest.fixture
def _no_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop waiting for the record of a dead shim."""
    monkeypatch.setattr("scheduling.engine.executors.slurm.executor.LAST_WORD_S", 0.0)


def last_id(world: SlurmWorld) -> int:
    """Return the highest job id, because other tests may have had jobs on the same cluster."""
    table = world.slurm.run("squeue", "--noheader", "--states=all", "--format=%A")
    return max(map(int, table.split()), default=0)


def states_after(world: SlurmWorld, job_id: int) -> list[str]:
    table = world.slurm.run("squeue", "--noheader", "--states=all", "--format=%A %T")
    rows = map(str.split, table.splitlines())
    return sorted(state for number, state in rows if int(number) > job_id)


def next_lease(world: SlurmWorld, token: str) -> str:
    """Create another lease of a job once its current lease is over."""
    world.ended(token)
    job = Job.objects.get(pk=token_job(token))
    job.leases.update(state="ended", ended_at=job.submitted_at, started_at=job.submitted_at)
    world.executor.forget([token])
    return world.lease(job=job)


class TestProgramEnd:
    def test_has_exit_code_of_program(self, world: SlurmWorld) -> None:
        report = world.ended(world.shell("exit 7"))
        assert (report.state, report.exit_code) == (FINISHED, 7)

    def test_signal_gives_128_plus_its_number(self, world: SlurmWorld) -> None:
        assert world.ended(world.shell("kill -SEGV $$")).exit_code == 128 + 11

    def test_gang_ends_with_exit_code_of_failed_rank(self, world: SlurmWorld) -> None:
        token = world.shell("test $RANK = 0 && sleep 6000; exit 5", gpus=(2, 2))
        report = world.ended(token)
        assert (report.state, report.exit_code) == (FINISHED, 5)
        assert "rank 1 ended with 5" in world.log(token)

    def test_program_that_cannot_start_logs_reason(self, world: SlurmWorld) -> None:
        token = world.run("/nowhere/to/be/found")
        assert world.ended(token).exit_code == 127
        assert "cannot start '/nowhere/to/be/found'" in world.log(token)


class TestStop:
    @pytest.mark.parametrize(
        ("gpus", "code", "state"),
        [
            *(((2, 2), 99, STOPPED), ((1,), 99, STOPPED), ((3, 1), 99, STOPPED)),
            ((2, 2), 0, FINISHED),
        ],
    )
    def test_lets_every_node_checkpoint(
        self, world: SlurmWorld, gpus: tuple[int, ...], code: int, state: ReportState
    ) -> None:
        token = world.run(sys.executable, "-c", CHECKPOINTS, str(code), gpus=gpus)
        world.says(token, *(f"ready {rank}" for rank in range(len(gpus))))
        world.stop(token)
        assert world.ended(token).state is state
        job = world.folder(token).parents[1]
        assert sorted(path.name for path in job.glob("saved-*")) == [
            f"saved-{rank}" for rank in range(len(gpus))
        ]

    @pytest.mark.parametrize("gpus", [(1,), (2, 2)])
    def test_kills_stubborn_job_after_grace(self, world: SlurmWorld, gpus: tuple[int, ...]) -> None:
        stubborn = "trap '' USR1 TERM; echo ready $RANK; while :; do sleep 1; done"
        token = world.shell(stubborn, gpus=gpus)
        world.says(token, *(f"ready {rank}" for rank in range(len(gpus)) if len(gpus) > 1))
        world.says(token, "ready")
        world.stop(token, grace_s=2.0)
        assert world.ended(token).state is STOPPED
        assert "[evenshare] killed: its time to checkpoint has expired" in world.log(token)
        assert "SIGCONT" not in world.log(token)


class TestJobEnvironment:
    def test_shows_gpus_of_node_and_other_ranks(self, world: SlurmWorld) -> None:
        token = world.shell(RANKS, gpus=(3, 1))
        world.ended(token)
        lines = [line for line in world.log(token).splitlines() if line.startswith("rank")]
        assert sorted(lines) == ["rank 0 of 2 has 0,1,2 with 3,1", "rank 1 of 2 has 0 with 3,1"]

    def test_contains_nothing_of_portal(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in CANARIES.items():
            monkeypatch.setenv(name, value)
        token = world.shell("env; cat /proc/$PPID/environ")
        world.ended(token)
        seen = world.log(token) + "".join(
            path.read_text() for path in world.folder(token).glob("*.json")
        )
        assert "EVENSHARE_JOB_ID" in seen
        assert not [value for value in CANARIES.values() if value in seen]

    @pytest.mark.parametrize("gpus", [(1,), (1, 1)])
    def test_passes_arguments_byte_for_byte(self, world: SlurmWorld, gpus: tuple[int, ...]) -> None:
        nasty = [
            "$(id)",
            "`id`",
            "a b",
            "'\"",
            "--export=ALL",
            "#SBATCH --time=1",
            "\\",
            "ä\n;x",
            "",
        ]
        program = "import os, sys; print(ascii([sys.argv[1:], os.environ['MINE']]))"
        token = world.run(
            sys.executable, "-c", program, *nasty, gpus=gpus, environment={"MINE": "$(id) 'x' \n;"}
        )
        assert world.ended(token).exit_code == 0
        said = [line for line in world.log(token).splitlines() if line.startswith("[[")]
        assert said == [ascii([nasty, "$(id) 'x' \n;"])] * len(gpus)

    def test_ignores_variables_of_slurm_tools(self, world: SlurmWorld) -> None:
        wanted = {
            "SBATCH_ACCOUNT": "root",
            "SRUN_NTASKS": "9",
            "SLURM_TIME_FORMAT": "x",
            "OWN": "1",
        }
        token = world.shell("env", environment=wanted)
        world.ended(token)
        lines = world.log(token).splitlines()
        assert "OWN=1" in lines
        assert not {f"{name}={value}" for name, value in wanted.items() if name != "OWN"} & set(
            lines
        )


class TestLaunch:
    def test_job_submitted_twice_starts_once(self, world: SlurmWorld) -> None:
        """The answer to the first submission was lost, and squeue did not list the job yet."""
        token = world.lease("/bin/sh", "-c", "echo started; sleep 6000")
        specs = world.executor._specs([token_job(token)])
        world.executor._prepare(token, specs[token])
        submission = lease_submission(world.root, world.tools.options, token, specs[token])
        before = last_id(world)
        for _ in range(2):
            world.tools.submit(as_made(submission))
        world.launch(token)
        world.says(token, "started")
        eventually(lambda: states_after(world, before) == ["COMPLETED", "RUNNING"])
        assert world.log(token).count("started") == 1

    def test_job_refused_by_slurm_ends_with_reason(self, world: SlurmWorld) -> None:
        options = {**world.lab.pool.executor_options, "account": "none", "qos": "nowhere"}
        Pool.objects.update(executor_options={**options, "gres_types": {"a100": "h100"}})
        token = world.lease("true")
        world.launch(token)
        assert world.ended(token).state is STOPPED
        assert "Slurm does not run this job: " in world.log(token)

    def test_late_refusal_leaves_running_job_unchanged(self, world: SlurmWorld) -> None:
        """The job was submitted twice, and Slurm accepted only the first submission."""
        token = world.shell("echo started; sleep 6000")
        world.says(token, "started")
        assert not world.executor._refuse(token, "late")
        assert world.listed()[token].state is RUNNING
        assert world.log(token) == "started\n"

    def test_waits_for_drained_partition(self, world: SlurmWorld) -> None:
        token = world.lease("true")
        world.slurm.run("scontrol", "update", "PartitionName=gpu", "State=DRAIN")
        try:
            with pytest.raises(ExecutorError, match="not available"):
                world.executor.launch([Launch(token, token_job(token), world.now_us())])
        finally:
            world.slurm.run("scontrol", "update", "PartitionName=gpu", "State=UP")
        world.launch(token)
        assert world.ended(token).exit_code == 0

    def test_wrong_pool_options_name_the_field(self, world: SlurmWorld) -> None:
        Pool.objects.update(executor_options={"partition": "-x"})
        token = world.lease("true")
        with pytest.raises(ExecutorError, match=r"executor_options .*partition.*docs/slurm\.md"):
            world.executor.launch([Launch(token, token_job(token), world.now_us())])


class TestManipulatedFolder:
    def test_forged_end_does_not_keep_job_running(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SlurmExecutor, "cut_off_s", 0.5)
        forged = '{"code": 0, "started_us": 1, "ended_us": 2}'
        token = world.shell(f"echo '{forged}' > leases/1/exit.json; sleep 6000")
        assert world.listed()[token].state is RUNNING
        assert world.ended(token).state is STOPPED
        job = world.queued(token)
        assert job is None or is_over(job.state)

    def test_pipe_does_not_block_node(self, world: SlurmWorld) -> None:
        token = world.shell("mkdir -p leases/2; mkfifo leases/2/shim.log; echo ready")
        later = next_lease(world, token)
        world.launch(later)
        assert world.ended(later).state is FINISHED

    def test_does_not_block_launches_of_other_jobs(self, world: SlurmWorld) -> None:
        # A job that changes `uid` while its launch is still polled would be submitted again.
        waits = "until test -e manipulate; do sleep 0.1; done"
        token = world.shell(f"{waits}; printf a > uid; mkdir -p $PWD.a/x")
        (world.folder(token).parents[1] / "manipulate").touch()
        later = next_lease(world, token)
        other = world.lease("true")
        world.launch(later, other)
        assert world.ended(other).exit_code == 0

    def test_closed_folder_does_not_block_listing(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = world.shell("chmod 000 .; echo ready; sleep 6000")
        world.says(token, "ready")
        listed, refused = world.executor._listed, []

        def closed(*asked: int) -> list[Report]:
            """Fail as an operation does for every user except root."""
            if world.folder(token).parents[1].stat().st_mode & 0o777 == 0:
                refused.append(token)
                raise PermissionError(13, "closed")
            return listed(*asked)

        monkeypatch.setattr(world.executor, "_listed", closed)
        assert world.listed()[token].state is RUNNING
        assert refused == [token]


class TestForeignJob:
    def test_foreign_job_with_same_token_does_not_prevent_launch(self, world: SlurmWorld) -> None:
        token = world.lease("/bin/sh", "-c", "echo started; sleep 6000")
        world.slurm.run("sbatch", "--output=/dev/null", f"--comment={token}", "--wrap", "sleep 60")
        world.launch(token)
        world.says(token, "started")
        world.slurm.run("scancel", "--name=wrap")

    def test_cannot_forge_rows_in_its_comment(self, world: SlurmWorld) -> None:
        """The job's user may set its comment while it runs; squeue prints the comment unchanged."""
        token = world.shell("echo ready; sleep 6000")
        own = world.queued(token)
        assert own is not None
        cells = ("4242", "RUNNING", "10:00", "100", "900", str(os.geteuid()), "evenshare-5")
        row = "\x1f".join((*cells, "es-5-1"))
        before = world.tools.queue()
        comment = f"Comment={token}\n{row}\nguessed\x1f{row}"
        world.slurm.run("scontrol", "update", f"JobId={own.job_id}", comment)
        table = world.slurm.run("squeue", "--noheader", "--format=%k")
        assert row in table.splitlines()
        assert world.tools.queue() == before

    def test_foreign_job_with_same_token_and_name_ends_lease(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduling.engine.executors.slurm.executor.NO_SHIM_S", 0.5)
        token = world.lease("true")
        named = (f"--comment={token}", f"--job-name={job_name(token)}")
        world.slurm.run("sbatch", "--output=/dev/null", *named, "--wrap", "sleep 600")
        # The answer to the submission was lost, so the job's owner must be checked.
        (world.root / "active").mkdir(parents=True, exist_ok=True)
        (world.root / "active" / token).write_text(str(world.lab.pool.pk))
        world.executor.launch([Launch(token, token_job(token), world.now_us())])
        assert world.ended(token).state is STOPPED
        assert "nothing started on its node" in world.log(token)


class TestTimeLimit:
    def test_moves_with_lease(self, world: SlurmWorld) -> None:
        token = world.shell("sleep 6000")
        before = world.queued(token)
        assert before is not None
        until_us = world.now_us() + 10 * 3600 * 10**6
        world.executor.extend(world.lab.pool.pk, [Extension(token, token_job(token), until_us)])
        after = world.queued(token)
        assert after is not None
        assert after.limit_minutes > before.limit_minutes + 500
        assert float((world.folder(token) / "until").read_text()) * 10**6 > 0

    def test_fixed_limit_stays_and_earlier_jobs_move(self, world: SlurmWorld) -> None:
        options = world.lab.pool.executor_options
        moved = world.shell("sleep 6000")
        Pool.objects.update(executor_options={**options, "limit_minutes": 77})
        fixed = world.shell("sleep 6000")
        until_us = world.now_us() + 10 * 3600 * 10**6
        leases = [Extension(token, token_job(token), until_us) for token in (moved, fixed)]
        world.executor.extend(world.lab.pool.pk, leases)
        limits = [job and job.limit_minutes for job in map(world.queued, (moved, fixed))]
        assert limits[1] == 77
        assert (limits[0] or 0) > 600


class TestKilledController:
    def test_changes_nothing_while_it_is_away(
        self, own_world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = own_world
        token = world.shell("echo ready; sleep 6000")
        world.says(token, "ready")
        world.slurm.kill_controller()
        with monkeypatch.context() as patient:
            patient.setattr(commands, "CALL_S", 1.0)
            with pytest.raises(ExecutorError, match="squeue"):
                world.listed()
            # The request to stop still reaches the shim, through the folder.
            with pytest.raises(ExecutorError):
                world.stop(token, grace_s=0.5)
        eventually(lambda: world.exit(token))
        world.slurm.start_controller()
        assert world.ended(token).state is STOPPED

    def test_lost_submission_is_repeated(self, own_world: SlurmWorld) -> None:
        """The controller gives a lost job's id to another job, so an id identifies no job."""
        world = own_world
        other = world.lease("/bin/sh", "-c", "sleep 6000")
        token = world.lease("/bin/sh", "-c", "echo started; sleep 6000")
        wanted = [Launch(token, token_job(token), world.now_us())]
        world.executor.launch(wanted)
        world.slurm.kill_controller()
        world.slurm.start_controller()
        world.launch(other)
        world.launch(token)
        world.says(token, "started")
        assert world.log(token).count("started") == 1


class TestJobCancelledBySlurm:
    @pytest.mark.parametrize("gpus", [(1,), (1, 1)])
    def test_is_reported_as_stopped(self, world: SlurmWorld, gpus: tuple[int, ...]) -> None:
        """An administrator cancels the job, and all of its processes get SIGTERM at once."""
        token = world.shell("echo ready; sleep 6000", gpus=gpus)
        world.says(token, *["ready"] * len(gpus))
        job = world.queued(token)
        assert job is not None
        world.slurm.run("scancel", "--full", str(job.job_id))
        report = world.ended(token)
        assert (report.state, report.exit_code) == (STOPPED, None)


@pytest.mark.usefixtures("_no_last_word")
class TestLostNode:
    def test_stops_entire_gang(self, own_world: SlurmWorld) -> None:
        world = own_world
        token = world.run(sys.executable, "-c", CHECKPOINTS, "99", gpus=(1, 1))
        world.says(token, "ready 0", "ready 1")
        kill_node(world.slurm, "node-2")
        declare_down(world.slurm, "node-2")
        report = world.ended(token)
        assert (report.state, report.exit_code) == (STOPPED, None)

    def test_returning_node_ends_its_old_job(self, own_world: SlurmWorld) -> None:
        """Only a node's network failed; the program runs until its shim reads the stop request."""
        world = own_world
        token = world.shell("echo ready; sleep 6000")
        world.says(token, "ready")
        kill_node(world.slurm, "node-1", with_jobs=False)
        declare_down(world.slurm, "node-1")
        assert world.ended(token).state is STOPPED
        eventually(lambda: world.executor._is_open(token) is False)
        world.slurm.start_daemon("node-1")
        eventually(lambda: not _alive(world, token))


def _alive(world: SlurmWorld, token: str) -> bool:
    record = world.executor._claim(token) or {}
    return Path(f"/proc/{record.get('pid')}").exists()


class TestTools:
    def test_missing_tools_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(*_: Any, **__: Any) -> None:
            raise FileNotFoundError

        monkeypatch.setattr("subprocess.run", missing)
        with pytest.raises(ExecutorError, match="squeue is not installed here"):
            Slurm(SlurmOptions(partition="gpu")).queue()

    def test_classify_final_states(self) -> None:
        assert all(map(is_over, ("COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL")))
        assert not any(map(is_over, ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")))
