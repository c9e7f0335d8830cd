"""Test `make run-slurm`, the portal with a real Slurm cluster: its start, faults and end."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.demo.slurm.config import NODES, PARTITION
from portal.demo.slurm.processes import processes
from portal.embedded import slurm, supervisor
from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.options import SlurmOptions
from tests.integration.tree import ROOT, RunningTree, migrated
from tests.ports import free_port
from tests.slurm import require_slurm
from tests.tools import PATIENCE_S, eventually

# A program that records that it runs, and records a request to stop.
SLEEPER = """
import os, signal, sys, time
def checkpoint(*_):
    open(os.environ["EVENSHARE_JOB_DIR"] + "/saved", "w").write("yes")
    sys.exit(99)
signal.signal(signal.SIGUSR1, checkpoint)
open(os.environ["EVENSHARE_JOB_DIR"] + "/ready", "w").write("yes")
time.sleep(6000)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield a data folder that all tests share; each run continues after the previous one."""
    require_slurm()
    return migrated(tmp_path_factory.mktemp("run-slurm") / "data")


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[RunningTree]:
    tree = started(data)
    yield tree
    tree.end()


def started(data: Path) -> RunningTree:
    tree = RunningTree(data, free_port(), DEMO_SLURM="1")
    tree.wait_until_ready()
    tree.pause_all_pools_but("slurm")
    # While no user views them, the demo's tenants submit nothing, so all GPUs are free for these
    # tests.
    tree.query("UPDATE scheduling_poolclock SET viewed_wall = now() - interval '1 day'")
    evenshare(tree, "login", "--username", "rosa", "--password", "evenshare-demo")
    return tree


def evenshare(tree: RunningTree, *words: str) -> str:
    """Run the client as a user who has no other jobs, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "evenshare", *words],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "client" / "src"),
            "HOME": str(tree.data.parent),
            "EVENSHARE_URL": f"http://127.0.0.1:{tree.port}",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stderr}\n{tree.text()}"
    return done.stdout


def submit(tree: RunningTree, gpus: int, gpu_type: str, *command: str) -> str:
    wanted = ("--pool", "slurm", "--gpus", str(gpus), "--gpu-type", gpu_type)
    return evenshare(tree, "job", "submit", *wanted, "--", *command).strip()


def output(tree: RunningTree, job: str) -> str:
    """Return a job's output once it has ended."""
    return evenshare(tree, "job", "logs", job, "--follow")


def sleeper(tree: RunningTree, gpus: int, gpu_type: str) -> None:
    """Submit a job that sleeps for a long time, and wait until it runs."""
    before = marked(tree, "ready")
    submit(tree, gpus, gpu_type, "python", "-c", SLEEPER)
    eventually(lambda: marked(tree, "ready") > before)


def left(tree: RunningTree) -> dict[int, str]:
    """Return the remaining processes of the tree, of the daemons, and of Slurm jobs."""
    ran = dict.fromkeys(processes(conf_of(tree)), "of a job")
    return {**ran, **tree.processes()}


def conf_of(tree: RunningTree) -> Path:
    return tree.data / "slurm" / "slurm.conf"


def end(tree: RunningTree) -> None:
    """End the portal as Ctrl-C does, unless a test has already ended it."""
    if not tree.ended():
        assert tree.interrupt() == 0


def kill(tree: RunningTree, *words: str) -> None:
    """Kill all processes at once whose command line has one of the words."""
    doomed = [pid for pid, line in tree.processes().items() if any(one in line for one in words)]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(tree: RunningTree, name: str) -> int:
    """Return how many sleepers have written `ready` or `saved`."""
    return len(list((tree.data / "jobs").glob(f"*/{name}")))


class TestJobOfPool:
    def test_runs_on_node_of_cluster_and_output_is_available(self, running: RunningTree) -> None:
        command = ("python", "examples/pretend.py", "--seconds", "1")
        job = submit(running, 2, "v100", *command)
        said = output(running, job)
        assert re.search(r"^rank 0 of 1 on node-[34], GPUs \d,\d$", said, re.MULTILINE), said
        assert "done" in said
        assert "succeeded" in evenshare(running, "job", "show", job)

    def test_commands_shown_in_terminal_work(self, running: RunningTree) -> None:
        said = [line.partition("evenshare:   ")[2] for line in running.text().splitlines()]
        (command,) = (line for line in said if "job submit --pool slurm" in line)
        program, *words = shlex.split(command)
        assert (ROOT / program).name == "evenshare"
        job = evenshare(running, *words).strip()
        assert "8 a100" in evenshare(running, "job", "show", job)
        (squeue,) = (line for line in said if line.endswith(" squeue"))
        assert "JOBID" in subprocess.check_output(["env", *shlex.split(squeue)], text=True)
        evenshare(running, "job", "cancel", job)
        (page,) = (line for line in said if line.endswith("/pools/slurm/"))
        assert page.endswith(f"http://127.0.0.1:{running.port}/pools/slurm/")

    def test_can_be_a_gang_over_two_nodes(self, running: RunningTree) -> None:
        command = ("python", "examples/pretend.py", "--seconds", "1")
        job = submit(running, 8, "a100", *command)
        said = output(running, job)
        for rank, node in enumerate(("node-1", "node-2")):
            assert f"rank {rank} of 2 on {node}, GPUs 0,1,2,3" in said


class TestClusterDaemon:
    @pytest.mark.parametrize(
        ("words", "name"), [("slurmctld -D", "slurmctld"), ("-N node-5", "node-5")]
    )
    def test_is_restarted_after_kill_and_logged(
        self, running: RunningTree, words: str, name: str
    ) -> None:
        killed = running.kill(words)
        eventually(lambda: running.find(words) not in (0, killed))
        assert f"[slurm] {name} has ended and starts again in 0.5 s (SIGKILL" in running.text()

    def test_is_replaced_after_kill_of_its_keeper(self, running: RunningTree) -> None:
        """The process that keeps the daemons alive may be killed too.

        The next one starts all daemons.
        """
        daemons = {pid for pid, line in running.processes().items() if "slurm.conf -N" in line}
        assert len(daemons) == len(NODES)
        running.kill("portal.demo.slurm.keep")
        eventually(lambda: ready_again(running, daemons))
        assert "after" in output(running, submit(running, 1, "k80", "echo", "after"))


def ready_again(tree: RunningTree, before: set[int]) -> bool:
    now = {pid for pid, line in tree.processes().items() if "slurm.conf -N" in line}
    return len(now) == len(NODES) and not now & before


class TestShutdown:
    """These tests are last, because they end the run that the other tests share."""

    def test_ctrl_c_lets_jobs_checkpoint_and_leaves_no_process(self, running: RunningTree) -> None:
        sleeper(running, 8, "v100")
        before = marked(running, "saved")
        assert running.interrupt() == 0
        assert left(running) == {}
        assert marked(running, "saved") == before + 1

    def test_slurm_tools_fail_at_once_after_shutdown(self, running: RunningTree) -> None:
        end(running)
        cluster = Slurm(SlurmOptions(conf=str(conf_of(running)), partition=PARTITION))
        with pytest.raises(ExecutorError, match="configuration"):
            cluster.queue()

    def test_kill_9_of_portal_lets_jobs_checkpoint(self, data: Path, running: RunningTree) -> None:
        end(running)
        tree = started(data)
        try:
            sleeper(tree, 2, "k80")
            before = marked(tree, "saved")
            tree.process.kill()
            tree.process.wait(PATIENCE_S)
            eventually(lambda: not left(tree))
            assert marked(tree, "saved") == before + 1
        finally:
            tree.end()

    def test_kill_9_of_all_watchdogs_lets_jobs_checkpoint(
        self, data: Path, running: RunningTree
    ) -> None:
        end(running)
        tree = started(data)
        try:
            sleeper(tree, 2, "k80")
            sleeper(tree, 8, "v100")
            before = marked(tree, "saved")
            kill(tree, "manage.py up", "watchdog.py", "portal.demo.slurm.keep")
            eventually(lambda: not processes(conf_of(tree)))
            assert marked(tree, "saved") == before + 2
        finally:
            # Servers without a watchdog run until the next start.
            kill(tree, "")
            tree.end()


class TestStart:
    def test_names_missing_packages_and_starts_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("DEMO_SLURM", "1")
        monkeypatch.setenv("EVENSHARE_DATA_DIR", str(tmp_path / "data"))
        monkeypatch.setattr(slurm, "MODULE", "tests.integration.no_slurm")
        assert supervisor.main() == 1
        names = "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
        how = f"apt-get install --no-install-recommends {names}"
        (line,) = capsys.readouterr().out.splitlines()
        assert line == f"evenshare: Slurm is not installed here; as root: {how}"
        assert not (tmp_path / "data").exists()
