"""Test the Slurm cluster of the demo and of tests: its jobs, its recovery, its cleanup."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from portal.demo.slurm import packages
from portal.demo.slurm.cluster import SlurmCluster, SlurmError
from portal.demo.slurm.config import NODES
from portal.demo.slurm.processes import PROC, processes
from tests.slurm import kill_node, own_slurm, require_slurm
from tests.tools import eventually

# Much longer than any test, so a job ends only if it is stopped.
LONG_JOB = "srun --nodes=2 --ntasks-per-node=1 sleep 3600"


def submit(cluster: SlurmCluster, script: str, *arguments: str) -> str:
    """Submit a job and return its id; its output is dropped unless the arguments redirect it."""
    answer = cluster.run("sbatch", "--parsable", "--output=/dev/null", *arguments, "--wrap", script)
    return answer.strip()


def state_of(cluster: SlurmCluster, job: str) -> str:
    return cluster.run(
        "squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"
    ).strip()


def await_state(cluster: SlurmCluster, job: str, state: str) -> None:
    eventually(lambda: state_of(cluster, job) == state)


def mentioning(folder: Path) -> list[str]:
    """Return the command lines that name a cluster's folder, and those of its jobs."""
    lines = []
    for one in PROC.glob("[0-9]*"):
        try:
            command = (one / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command and int(one.name) != os.getpid():
            lines.append(command)
    return [*lines, *map(str, processes(folder / "slurm.conf"))]


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Yield a folder for sockets whose path is shorter than that of a test's own folder."""
    require_slurm()
    with TemporaryDirectory(prefix="slurm-") as folder:
        yield Path(folder)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    with own_slurm(tmp_path, slurmd_timeout_s=4) as cluster:
        yield cluster


class TestCluster:
    def test_has_idle_nodes_of_three_types(self, slurm_cluster: SlurmCluster) -> None:
        assert slurm_cluster.node_states() == {node.name: "idle" for node in NODES}
        lines = slurm_cluster.run("sinfo", "--noheader", "--Node", "--format=%N %G").splitlines()
        assert [line.split() for line in lines] == [
            [node.name, f"gpu:{node.gpu_type}:{node.gpus}"] for node in slurm_cluster.nodes
        ]
        assert {node.gpu_type for node in slurm_cluster.nodes} == {"a100", "v100", "k80"}

    def test_runs_gang_on_assigned_nodes(self, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
        output = tmp_path / "output"
        task = "srun --nodes=2 --ntasks-per-node=1 env | grep -E 'CUDA_VISIBLE|SLURMD_NODENAME'"
        job = submit(
            slurm_cluster, task, "--nodelist=node-2,node-3", "--nodes=2", "--gres=gpu:4",
            f"--output={output}",
        )  # fmt: skip
        await_state(slurm_cluster, job, "COMPLETED")
        assert sorted(output.read_text().split()) == [
            "CUDA_VISIBLE_DEVICES=0,1,2,3",
            "CUDA_VISIBLE_DEVICES=0,1,2,3",
            "SLURMD_NODENAME=node-2",
            "SLURMD_NODENAME=node-3",
        ]

    def test_is_reachable_from_this_host_only(self, slurm_cluster: SlurmCluster) -> None:
        text = slurm_cluster.run("scontrol", "show", "config")
        assert "NoInAddrAny,NoCtldInAddrAny" in text
        (socket,) = re.findall(r"^AuthInfo *= socket=(\S+)", text, re.MULTILINE)
        assert Path(socket).with_name("key").stat().st_mode & 0o777 == 0o400

    def test_reports_error_message_of_tool(self, slurm_cluster: SlurmCluster) -> None:
        with pytest.raises(SlurmError, match=r"sbatch: .*[Ii]nvalid.*partition"):
            submit(slurm_cluster, "true", "--partition=nowhere")

    def test_runs_next_to_other_cluster(self, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
        with own_slurm(tmp_path) as other:
            job = submit(other, LONG_JOB, "--nodes=2", "--gres=gpu:4")
            await_state(other, job, "RUNNING")
            assert slurm_cluster.run("squeue", "--noheader") == ""
        assert slurm_cluster.node_states()["node-1"] == "idle"


class TestLostNode:
    def test_is_down_with_its_job_and_comes_back(self, own_cluster: SlurmCluster) -> None:
        job = submit(own_cluster, LONG_JOB, "--nodelist=node-4,node-5", "--nodes=2", "--gres=gpu:1")
        eventually(lambda: processes(own_cluster.conf, "node-5"))
        kill_node(own_cluster, "node-5")
        assert not processes(own_cluster.conf, "node-5")
        eventually(lambda: own_cluster.node_states()["node-5"].startswith("down"))
        await_state(own_cluster, job, "NODE_FAIL")
        own_cluster.start_daemon("node-5")
        eventually(lambda: own_cluster.node_states()["node-5"] == "idle")

    def test_disconnected_node_keeps_its_processes(self, own_cluster: SlurmCluster) -> None:
        submit(own_cluster, LONG_JOB, "--nodelist=node-4,node-5", "--nodes=2", "--gres=gpu:1")
        eventually(lambda: processes(own_cluster.conf, "node-5"))
        kill_node(own_cluster, "node-5", with_jobs=False)
        assert own_cluster.dead_daemons() == ["node-5"]
        assert processes(own_cluster.conf, "node-5")


class TestKilledController:
    def test_knows_its_job_after_restart(self, own_cluster: SlurmCluster) -> None:
        saved = own_cluster.conf.parent / "state/job_state"
        job = submit(own_cluster, LONG_JOB, "--nodes=2", "--gres=gpu:4")
        await_state(own_cluster, job, "RUNNING")
        # The controller saves its state after some seconds. If it is killed earlier, it loses the
        # job.
        before = saved.stat().st_mtime_ns if saved.exists() else 0
        eventually(lambda: saved.exists() and saved.stat().st_mtime_ns > before)
        own_cluster.kill_controller()
        assert own_cluster.dead_daemons() == ["slurmctld"]
        own_cluster.start_controller()
        await_state(own_cluster, job, "RUNNING")
        eventually(lambda: set(own_cluster.node_states().values()) == {"idle", "mixed"})


class TestClusterEnd:
    def test_leaves_no_process_of_running_job(self, own_cluster: SlurmCluster) -> None:
        folder = own_cluster.conf.parent
        submit(own_cluster, LONG_JOB, "--nodes=2", "--gres=gpu:4")
        eventually(lambda: len(processes(own_cluster.conf)) > 4)
        assert mentioning(folder)
        own_cluster.stop()
        assert mentioning(folder) == []

    def test_leaves_no_process_without_controller(self, own_cluster: SlurmCluster) -> None:
        submit(own_cluster, LONG_JOB, "--nodes=2", "--gres=gpu:4")
        eventually(lambda: len(processes(own_cluster.conf)) > 4)
        own_cluster.kill_controller()
        own_cluster.stop()
        assert mentioning(own_cluster.conf.parent) == []

    def test_next_start_marks_old_jobs_as_cancelled(self, own_cluster: SlurmCluster) -> None:
        job = submit(own_cluster, LONG_JOB, "--nodes=2", "--gres=gpu:4")
        await_state(own_cluster, job, "RUNNING")
        own_cluster.run("scontrol", "update", "NodeName=node-1", "State=drain", "Reason=test")
        own_cluster.stop()
        own_cluster.start()
        assert state_of(own_cluster, job) == "CANCELLED"
        eventually(lambda: own_cluster.node_states()["node-1"] == "drained")

    def test_cluster_ends_if_its_starter_is_killed(self, tmp_path: Path, sockets: Path) -> None:
        program = (
            "import sys; from pathlib import Path; from portal.demo.slurm.cluster import *;"
            " folder, sockets = map(Path, sys.argv[1:]);"
            " SlurmCluster(folder, sockets=sockets).start(); print('up', flush=True);"
            " sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(sockets)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as starter:
            assert starter.stdout is not None
            assert starter.stdout.readline() == b"up\n"
            starter.kill()
        eventually(lambda: mentioning(tmp_path) == [])


class TestClusterStart:
    def test_failure_is_explained_and_leaves_nothing(
        self, tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "portal.demo.slurm.config.slurm_conf", lambda *_, **__: "ClusterName=broken\nNoSuch=1\n"
        )
        cluster = SlurmCluster(tmp_path, sockets=sockets)
        with pytest.raises(SlurmError, match=r"(?s)does not start .*NoSuch"):
            cluster.start()
        assert mentioning(tmp_path) == []

    def test_rejects_too_long_path(self, tmp_path: Path) -> None:
        require_slurm()
        with pytest.raises(SlurmError, match="path of a socket would be too long"):
            SlurmCluster(tmp_path / ("deep" * 25)).start()

    def test_too_long_path_works_with_separate_socket_folder(
        self, tmp_path: Path, sockets: Path
    ) -> None:
        deep = tmp_path / ("deep" * 25)
        with SlurmCluster(deep, sockets=sockets) as slurm:
            job = submit(slurm, "true", "--nodes=1", "--gres=gpu:1")
            await_state(slurm, job, "COMPLETED")
        assert mentioning(deep) == []

    def test_rejects_folder_of_running_cluster_and_ends_nothing(
        self, own_cluster: SlurmCluster, sockets: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = submit(own_cluster, LONG_JOB, "--nodes=2", "--gres=gpu:1")
        await_state(own_cluster, job, "RUNNING")
        monkeypatch.setattr("portal.demo.slurm.cluster.START_PATIENCE_S", 0.0)
        with pytest.raises(SlurmError, match="still running"):
            SlurmCluster(own_cluster.conf.parent, sockets=sockets).start()
        assert own_cluster.dead_daemons() == []
        assert state_of(own_cluster, job) == "RUNNING"

    def test_names_missing_packages(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packages, "find", lambda _program: None)
        monkeypatch.setattr(packages, "LIBRARIES", tmp_path)
        names = "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
        with pytest.raises(SlurmError, match=f"apt-get install --no-install-recommends {names}$"):
            SlurmCluster(tmp_path).start()
