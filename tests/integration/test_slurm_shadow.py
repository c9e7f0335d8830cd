"""Test shadow mode on a real cluster: it reports on other users' jobs and changes none."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.slurm.cluster_text import parse_config
from tests.integration.slurm_world import make_lab
from tests.slurm import own_slurm
from tests.tools import eventually

ACCOUNTS = ("bio", "physics", "vision")
JOBS = 20


def submit(cluster: SlurmCluster, script: str, *arguments: str) -> str:
    options = ["--parsable", "--output=/dev/null", *arguments]
    return cluster.run("sbatch", *options, "--wrap", script).strip()


def shadow(cluster: SlurmCluster, folder: Path, *arguments: str) -> str:
    """Run the command for one poll; return its output."""
    out = io.StringIO()
    named = ["--partition", cluster.partition, "--conf", str(cluster.conf), "--out", str(folder)]
    lengths = ["--minutes", "0", "--round-s", "1", "--lease-s", "5"]
    call_command("shadow_slurm", *named, *lengths, *arguments, stdout=out)
    return out.getvalue()


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def listed(cluster: SlurmCluster) -> list[list[str]]:
    table = cluster.run("squeue", "--noheader", "--states=all", "--array", "--format=%i %T %a")
    return sorted(line.split() for line in table.splitlines())


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    """Yield a cluster without earlier jobs."""
    with own_slurm(tmp_path / "slurm") as cluster:
        yield cluster


def wait_for_the_end(cluster: SlurmCluster) -> None:
    """Wait until every job is over."""
    eventually(lambda: not cluster.run("squeue", "--noheader"))


class TestBusyPartition:
    def test_report_names_every_job_and_changes_none(
        self, own_cluster: SlurmCluster, tmp_path: Path
    ) -> None:
        slurm_cluster = own_cluster
        ids = [
            submit(
                slurm_cluster, "sleep 1", f"--account={ACCOUNTS[number % 3]}", "--gres=gpu:4",
                "--time=10",
            )
            for number in range(JOBS)
        ]  # fmt: skip
        folder = tmp_path / "shadow"

        def over() -> bool:
            # The command ends after each poll and continues from its folder.
            shadow(slurm_cluster, folder, "--policy", "ltgf,fifo")
            seen = rows(folder / "observed.csv")
            return len(seen) == JOBS and all(row["state"] == "COMPLETED" for row in seen)

        eventually(over)
        report = (folder / "report.md").read_text()
        for name, account in zip(ids, [ACCOUNTS[n % 3] for n in range(JOBS)], strict=True):
            assert f"| {name} | {account} | 4 |" in report
        jobs = {row["job"]: row for row in rows(folder / "jobs.csv")}
        assert jobs.keys() == set(ids)
        for row in jobs.values():
            assert float(row["Slurm_started_s"]) <= float(row["Slurm_ended_s"])
            assert row["ltgf_started_s"]
            assert row["fifo_started_s"]
        assert len(rows(folder / "looks.csv")) > 1
        # The command neither submitted nor ended a job.
        config = parse_config(slurm_cluster.run("scontrol", "show", "config"))
        assert int(config["NEXT_JOB_ID"]) == int(ids[-1]) + 1
        assert listed(slurm_cluster) == sorted(
            [name, "COMPLETED", ACCOUNTS[number % 3]] for number, name in enumerate(ids)
        )

    def test_files_are_readable_by_simulate(
        self, slurm_cluster: SlurmCluster, tmp_path: Path
    ) -> None:
        shadow(slurm_cluster, tmp_path)
        # Times are whole seconds. A job that already runs or has ended at the first poll does not
        # arrive in the simulation.
        looked = int(rows(tmp_path / "looks.csv")[0]["at"])
        eventually(lambda: int(time.time()) > looked)
        job = submit(slurm_cluster, "true", "--gres=gpu:k80:1", "--account=bio")
        eventually(lambda: [job, "COMPLETED", "bio"] in listed(slurm_cluster))
        said = shadow(slurm_cluster, tmp_path)
        command = said.splitlines()[-1].partition("evenshare-core simulate ")[2].split()
        out = io.StringIO()
        call_command("simulate", *command, stdout=out)
        assert "jobs=1 " in out.getvalue()

    def test_shows_what_would_be_decided_now(
        self, slurm_cluster: SlurmCluster, tmp_path: Path
    ) -> None:
        held = [
            submit(
                slurm_cluster, "sleep 600", "--gres=gpu:v100:4", "--nodes=2", f"--account={name}"
            )
            for name in ("bio", "physics")
        ]
        try:
            eventually(lambda: [held[0], "RUNNING", "bio"] in listed(slurm_cluster))
            quotas = tmp_path / "quotas.csv"
            quotas.write_text("tenant,gpu_type,gpus\nphysics,v100,8\nbio,v100,0\n")
            arguments = ("--quotas", str(quotas), "--policy", "ltgf")
            # The time at which the lease of 5 s would end.
            eventually(
                lambda: (
                    f"start 1 ({held[1]}) and ask 1 ({held[0]}) to yield"
                    in shadow(slurm_cluster, tmp_path / "out", *arguments)
                )
            )
            last = rows(tmp_path / "out" / "decisions.csv")[-2:]
            assert [(row["job"], row["what"]) for row in last] == [
                (held[1], "start"), (held[0], "yield"),
            ]  # fmt: skip
            assert last[0]["nodes"] == "node-3:4 node-4:4"
            assert [held[0], "RUNNING", "bio"] in listed(slurm_cluster)
        finally:
            slurm_cluster.run("scancel", *held)
        eventually(lambda: [held[0], "CANCELLED", "bio"] in listed(slurm_cluster))


class TestMixedGangs:
    def test_are_counted_in_gpus(self, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
        kinds = {
            ("--gpus=a100:2",): "2",
            ("--gres=gpu:a100:1", "--nodes=2"): "2",
            ("--gpus-per-task=v100:1", "--ntasks=3"): "3",
            ("--gres=gpu:3",): "3",
            (): "0",
        }
        ids = {
            submit(slurm_cluster, "true", "--account=kinds", *how): count
            for how, count in kinds.items()
        }
        held = submit(slurm_cluster, "true", "--hold", "--gres=gpu:1", "--account=kinds")
        group = submit(slurm_cluster, "true", "--array=0-1", "--gres=gpu:1", "--account=kinds")
        shadow(slurm_cluster, tmp_path)
        seen = {row["job"]: row for row in rows(tmp_path / "observed.csv")}
        assert {name: seen[name]["gpus"] for name in ids} == ids
        assert {f"{group}_0", f"{group}_1"} <= seen.keys()
        assert seen[held]["ready"] == ""
        assert f"| {held} |" not in (tmp_path / "report.md").read_text()
        slurm_cluster.run("scancel", held)
        wait_for_the_end(slurm_cluster)


class TestPool:
    @pytest.mark.usefixtures("committed_db")
    def test_supplies_cluster_policy_and_lengths(
        self, slurm_cluster: SlurmCluster, tmp_path: Path
    ) -> None:
        pool = make_lab(slurm_cluster, policy="fifo", lease_s=40, round_s=4).pool
        pool.executor_options |= {"gres_types": {"big": "a100"}}
        pool.save()
        job = submit(slurm_cluster, "true", "--gres=gpu:a100:1", "--account=bio")
        out = io.StringIO()
        call_command("shadow_slurm", pool.name, minutes=0, out=str(tmp_path), stdout=out)
        assert "fifo would start" in out.getvalue()
        assert "--policy fifo --estimates given --round-s 4 --lease-s 40" in out.getvalue()
        assert "node-1,big,4" in (tmp_path / "nodes.csv").read_text()
        assert job in {row["job"] for row in rows(tmp_path / "observed.csv")}
        wait_for_the_end(slurm_cluster)

    @pytest.mark.usefixtures("committed_db")
    def test_unknown_pool_is_rejected(self) -> None:
        with pytest.raises(CommandError, match="there is no pool nowhere"):
            call_command("shadow_slurm", "nowhere")


class TestWithoutCluster:
    def test_explains_errors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CommandError, match="squeue is not installed here"):
            call_command("shadow_slurm", "--partition", "gpu")
        with pytest.raises(CommandError, match="a pool or a --partition"):
            call_command("shadow_slurm")
        with pytest.raises(CommandError, match=r"executor_options .* are wrong"):
            call_command("shadow_slurm", "--partition", "no name")
