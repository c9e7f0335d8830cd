"""Test `check_slurm` on a real cluster with and without errors."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import override_settings

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.slurm import commands
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.findings import Level
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.slurm.trial import trial_findings
from scheduling.models import Node
from tests.integration.slurm_world import make_lab
from tests.slurm import require_slurm
from tests.tools import eventually


def check(*arguments: str) -> tuple[str, int]:
    """Run `check_slurm`; return its output and its exit status."""
    out = io.StringIO()
    try:
        call_command("check_slurm", *arguments, stdout=out)
    except SystemExit as stop:
        return out.getvalue(), int(stop.code or 0)
    return out.getvalue(), 0


def named(cluster: SlurmCluster, partition: str = "") -> list[str]:
    return ["--partition", partition or cluster.partition, "--conf", str(cluster.conf)]


def jobs(cluster: SlurmCluster, state: str = "") -> list[str]:
    states = f"--states={state}" if state else "--noheader"
    return cluster.run("squeue", "--noheader", states, "--format=%i").split()


class TestValidCluster:
    def test_passes_and_trial_leaves_no_files(
        self, slurm_cluster: SlurmCluster, tmp_path: Path
    ) -> None:
        with override_settings(LOCAL_ROOT=str(tmp_path)):
            text, status = check(*named(slurm_cluster), "--run", "--node", "node-5")
        assert (status, "error " in text, "warning " in text) == (0, False, False)
        for line in (
            "ok       trial on node-5: reads and writes the folder of jobs",
            "ok       trial, time limit: was prolonged",
            "ok       MinJobAge: 3600 s",
            "ok       jobs of others: none in the partition",
            "ok       clock of the controller: within 5 s of the portal's",
            "ok       clock of node-5: within 5 s of the portal's",
        ):
            assert line in text
        assert len(set(text.splitlines())) == len(text.splitlines())
        assert text.splitlines()[-1].startswith("errors: 0, warnings: 0, ok: ")
        assert [path.name for path in tmp_path.iterdir()] == ["shims"]
        eventually(lambda: jobs(slurm_cluster) == [])

    @pytest.mark.usefixtures("committed_db")
    def test_is_compared_with_pool(self, slurm_cluster: SlurmCluster) -> None:
        pool = make_lab(slurm_cluster).pool
        text, status = check(pool.name)
        assert "ok       GPUs: of all nodes of the pool match Slurm" in text
        assert "warning  KillWait: 5 s, less than the pool's grace of 20 s" in text
        assert status == 0
        Node.objects.filter(pool=pool, name="node-2").update(name="node-9", gpus=8)
        Node.objects.filter(pool=pool, name="node-1").update(gpus=8)
        text, status = check(pool.name)
        assert "error    nodes of the pool: not in the partition: node-9" in text
        assert "error    GPUs: node-1 has 4 a100 in Slurm, 8 a100 in the pool" in text
        assert status == 1


class TestInvalidCluster:
    def test_reports_unknown_partition(self, tmp_path: Path, slurm_cluster: SlurmCluster) -> None:
        text, status = check(*named(slurm_cluster, "nowhere"))
        assert "error    partition nowhere: " in text
        assert "not found" in text
        assert status == 1

    def test_reports_unreachable_cluster(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        require_slurm()
        monkeypatch.setattr(commands, "CALL_S", 1.0)
        text, status = check("--partition", "gpu", "--conf", str(tmp_path / "slurm.conf"))
        assert "error " in text
        assert status == 1

    def test_reports_missing_python_on_nodes(
        self, slurm_cluster: SlurmCluster, tmp_path: Path
    ) -> None:
        options = SlurmOptions(
            conf=str(slurm_cluster.conf), partition=slurm_cluster.partition, python="/no/python3"
        )
        (line,) = trial_findings(Slurm(options), tmp_path, "node-1")
        assert line.level is Level.ERROR
        assert "/no/python3" in line.text

    def test_reports_different_folder_on_nodes(
        self, slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        probe = tmp_path / "probe.py"
        probe.write_text("")  # The folder appears to be on another disk.
        monkeypatch.setattr("scheduling.engine.executors.slurm.trial.PROBE", probe)
        options = SlurmOptions(conf=str(slurm_cluster.conf), partition=slurm_cluster.partition)
        (line,) = trial_findings(Slurm(options), tmp_path / "jobs", "node-1")
        assert line.level is Level.ERROR
        assert "Mount the folder at the same path on all nodes" in line.text
