"""Input, repeatability and error messages of `manage.py simulate`."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from evenshare_core.policies.registry import DEFAULT

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
GAVEL = str(DATA / "gavel_slice.csv")
CHRONUS = str(DATA / "chronus_slice.csv")
NODES = str(DATA / "philly_nodes_slice.csv")
DRAWN = f"jobs=60,tenants=11,hours=2,failed=0.2,cancelled=0.2,models={GAVEL}"
TYPES = ("--gpu-types", "k80:3,p100:2,v100:1")
SMALL = ("--synthetic", "20,3,2", "--nodes", "2")


def command(*args: str) -> str:
    out = StringIO()
    call_command("simulate", *args, stdout=out)
    return out.getvalue()


def result(*args: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(command(*args, "--json"))
    return dict(told["results"][0])


class TestRun:
    def test_is_reproducible_from_file(self, tmp_path: Path) -> None:
        path = str(tmp_path / "work.csv")
        first = result("--synthetic", DRAWN, *TYPES, "--workload-out", path, "--seed", "4")
        again = result("--trace", path, "--speeds", GAVEL, *TYPES, "--seed", "4")
        assert again["sha256"] == first["sha256"]
        # without speeds the run differs
        assert result("--trace", path, *TYPES)["sha256"] != first["sha256"]

    def test_is_independent_of_hash_seed(self) -> None:
        args = (
            *("--synthetic", DRAWN, *TYPES, "--policy", "ltgf,oef,srtf", "--json"),
            *("--churn", NODES, "--round-s", "60", "--cold-s", "20", "--estimate-error", "0.3"),
        )
        told = [json.loads(command(*args)), self.in_another_process(*args)]
        hashes = [[row["sha256"] for row in one["results"]] for one in told]
        assert hashes[0] == hashes[1]
        assert len(set(hashes[0])) == 3

    @staticmethod
    def in_another_process(*args: str) -> dict[str, Any]:
        """Run in a process with another hash seed."""
        done = subprocess.run(
            [sys.executable, "manage.py", "simulate", *args],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def test_reports_missed_deadlines_of_chosen_set(self) -> None:
        args = ("--trace", CHRONUS, "--nodes", "1", "--policy", "fifo", "--set")
        prompt = [result(*args, name) for name in ("SLO", "MIX2")]
        assert [row["jobs"] for row in prompt] == [16, 16]
        assert prompt[0]["deadline_miss_rate"] == 0
        late = [result(*args, name, "--round-s", "7200") for name in ("SLO", "MIX2")]
        # a job with one deadline is worth either everything or nothing
        assert late[0]["deadline_miss_rate"] * 16 % 1 == 0
        assert prompt[1]["deadline_miss_rate"] < late[1]["deadline_miss_rate"]
        assert 0 < late[1]["deadline_miss_rate"] < late[0]["deadline_miss_rate"] < 1

    def test_cancels_configured_share_of_jobs(self, tmp_path: Path) -> None:
        drawn = ("--synthetic", "jobs=300,tenants=3,hours=9,cancelled=0.5", "--nodes", "9")
        command(*drawn, "--jobs-out", str(tmp_path))
        kept = (tmp_path / f"jobs_{DEFAULT}.csv").read_text().count("\n") - 1
        assert 150 < kept < 290  # some jobs end before their cancellation

    def test_loses_nodes_by_churn_history(self) -> None:
        args = ("--synthetic", "jobs=60,tenants=3,hours=40", "--nodes", "6", "--policy", "fifo")
        still = result(*args)
        shaken = result(*args, "--churn", NODES)
        moved = result(*args, "--churn", NODES, "--churn-from", "2017-10-26T18:06")
        assert len({row["sha256"] for row in (still, shaken, moved)}) == 3
        assert shaken["jobs"] == still["jobs"] == 60

    def test_has_no_utilisation_without_nodes(self, tmp_path: Path) -> None:
        path = tmp_path / "nodes.csv"
        path.write_text("time,active,total\n0,0,9\n9999,9,9\n")
        told = result(*SMALL, "--churn", str(path))
        assert (told["gpu_utilisation"], told["waste"], told["jobs"]) == (None, None, 20)

    def test_dated_jobs_use_churn_of_their_dates(self, tmp_path: Path) -> None:
        path = tmp_path / "jobs.csv"
        jobs = ("a,1,2017-10-26T18:10,60", "a,1,2017-10-26T18:20,60")
        path.write_text("\n".join(["tenant,gpus,submit_s,duration_s", *jobs]))
        args = ("--trace", str(path), "--nodes", "20", "--gpus-per-node", "1", "--churn", NODES)
        with pytest.raises(CommandError, match="use --churn-from 1970-01-01"):
            command(*args)
        told = result(*args, "--churn-from", "1970-01-01")
        still = result(*args[:-2])
        assert told["gpu_utilisation"] > still["gpu_utilisation"]  # the same work on fewer GPUs

    def test_cancels_jobs_in_infinite_floor(self, tmp_path: Path) -> None:
        path = tmp_path / "jobs.csv"
        jobs = ("a,1,0,100,", "a,1,0,900,30", "a,1,5,900,3", "a,1,0,60,65")
        path.write_text("\n".join(["tenant,gpus,submit_s,duration_s,cancel_s", *jobs]))
        args = ("--trace", str(path), "--nodes", "1", "--round-s", "10", "--floor", "--json")
        floor, run = json.loads(command(*args))["results"]
        # the mean over jobs that were not cancelled
        assert floor["avg_jct_s"] == run["avg_jct_s"] == 80
        assert floor["jobs"] == run["jobs"] == 4

    def test_infinite_floor_is_never_slower(self, tmp_path: Path) -> None:
        path = tmp_path / "jobs.csv"
        jobs = ("a,1,0,600,", "a,1,0,600,slow", "a,1,5,600,fast")
        path.write_text("\n".join(["tenant,gpus,submit_s,duration_s,gpu_types", *jobs]))
        args = ("--trace", str(path), "--gpu-types", "slow:1,fast:1:3", "--floor", "--json")
        floor, run = json.loads(command(*args))["results"]
        assert floor["avg_jct_s"] == (200 + 600 + 200) / 3
        assert run["avg_jct_s"] >= floor["avg_jct_s"]

    @pytest.mark.parametrize("is_frozen", [False, True])
    def test_restores_garbage_collector_settings(self, *, is_frozen: bool) -> None:
        before = (gc.isenabled(), gc.get_threshold())
        (gc.freeze if is_frozen else gc.unfreeze)()
        try:
            result(*SMALL)
            with pytest.raises(CommandError):
                command(*SMALL, "--jobs-out", GAVEL)
            assert (gc.isenabled(), gc.get_threshold()) == before
            assert (gc.get_freeze_count() > 0) is is_frozen
        finally:
            gc.freeze()

    def test_reads_configured_columns(self, tmp_path: Path) -> None:
        path, out, err = tmp_path / "team.csv", StringIO(), StringIO()
        path.write_text("team,gpus,submit_s,length\na,1,0,9\nb,0.5,0,9\nb,0,0,9\n")
        maps = ("--map", "team=tenant", "length=duration")
        args = ("simulate", "--trace", str(path), *maps, "--nodes", "1", "--json")
        call_command(*args, stdout=out, stderr=err)
        assert json.loads(out.getvalue())["results"][0]["jobs"] == 2
        assert "1 line requests no GPU and is skipped (line 4)" in err.getvalue()
        assert "1 job requests a fraction of a GPU" in err.getvalue()

    @pytest.mark.parametrize(
        ("name", "jobs"), [("jobs_dump.txt", 7), ("two_jobs.swf", 1), ("philly_log.json", 1)]
    )
    def test_reads_scheduler_logs(self, name: str, jobs: int) -> None:
        args = ("--trace", str(DATA / name), "--nodes", "2", "--policy", "fifo")
        assert result(*args)["jobs"] == jobs

    def test_reads_compressed_files(self, tmp_path: Path) -> None:
        packed = tmp_path / "gavel.csv.gz"
        packed.write_bytes(gzip.compress(Path(GAVEL).read_bytes()))
        drawn = DRAWN.replace(GAVEL, str(packed))
        args = ("--synthetic", "{}", *TYPES, "--policy", "fifo")
        found = [result(args[0], text, *args[2:])["sha256"] for text in (DRAWN, drawn)]
        assert found[0] == found[1]


class TestErrors:
    @pytest.mark.parametrize(
        ("args", "says"),
        [
            (("--nodes", "2"), "--trace or --synthetic"),
            (("--synthetic", "9,2,1", "--trace", CHRONUS, "--nodes", "1"), "either --trace or"),
            (("--synthetic", "9,2,1"), "exactly one of --nodes"),
            (("--synthetic", "9,2,1", "--nodes", "0"), "--nodes: must be a whole number from 1"),
            (("--synthetic", "9,2,1", "--nodes", "-3"), "--nodes: must be a whole number"),
            ((*SMALL, "--gpus-per-node", "0"), "--gpus-per-node: must"),
            ((*SMALL, "--policy", "nobody"), "nobody"),
            ((*SMALL, "--policy", "ltgf,"), "--policy: a name is empty"),
            ((*SMALL, "--policy", ","), "--policy: a name is empty"),
            ((*SMALL, "--policy", "ltgf, ltgf"), "twice"),
            ((*SMALL, "--option", "ltgf.spreadd=true"), "spreadd"),
            ((*SMALL, "--option", "spread"), "POLICY.KEY=VALUE"),
            ((*SMALL, "--option", "fifo.a=1"), "'fifo' is not in --policy"),
            ((*SMALL, "--lease-s", "-1"), "--lease-s must be a time of at least 0"),
            ((*SMALL, "--lease-s", "9", "--checkpoint-s", "9"), "must be shorter than --lease-s"),
            ((*SMALL, "--round-s", "nan"), "--round-s must be a time of at least 0"),
            ((*SMALL, "--estimate-error", "2"), "--estimate-error"),
            ((*SMALL, "--set", "SLO"), "--set needs a --trace that has several sets"),
            ((*SMALL, "--map", "a=tenant"), "--map and --format need a --trace"),
            ((*SMALL, "--format", "swf"), "--map and --format need a --trace"),
            (("--trace", GAVEL, "--map", "tenant", "--nodes", "1"), "--map must be COLUMN=FIELD"),
            (("--trace", GAVEL, "--map", "a=x", "a=y", "--nodes", "1"), "column 'a' twice"),
            ((*SMALL, "--partitions", NODES), "exactly one of --nodes"),
            ((*SMALL, *TYPES), "exactly one of --nodes"),
            ((*SMALL, "--speeds", GAVEL), "needs --gpu-types"),
            ((*SMALL, "--churn-from", "2017-10-09"), "needs --churn"),
            ((*SMALL, "--churn", NODES, "--churn-from", "soon"), "'soon': is not a date"),
            ((*SMALL, "--churn", NODES, "--churn-from", "2040-01-01"), "before the run begins"),
            ((*SMALL, "--churn", GAVEL), "gavel_slice.csv: a history of nodes needs"),
            ((*SMALL, "--churn", "nowhere"), "nowhere: No such file"),
            ((*SMALL, "--report", "/nowhere/r.html"), "/nowhere/r.html: No such file"),
            ((*SMALL, "--jobs-out", GAVEL), "gavel_slice.csv"),
            (("--synthetic", "9,2", "--nodes", "1"), "--synthetic: needs hours"),
            (("--synthetic", "9,2,x", "--nodes", "1"), "--synthetic hours: must be a whole"),
            (("--synthetic", "0,2,1", "--nodes", "1"), "--synthetic jobs: must be a whole"),
            (("--synthetic", "9,2,1,7", "--nodes", "1"), "'7' is unknown or repeated"),
            (("--synthetic", "9,2,1,cats=7", "--nodes", "1"), "'cats=7' is unknown or repeated"),
            (("--synthetic", "9,2,1,failed=7", "--nodes", "1"), "failed: must be a share"),
            (("--synthetic", "9,2,1,models=nowhere", *TYPES), "nowhere: No such file"),
            (("--synthetic", DRAWN, "--gpu-types", "a100:2"), "runs on none of a100"),
            (("--synthetic", "9,2,1", "--gpu-types", "k80"), "--gpu-types k80: must be a whole"),
            (("--synthetic", "9,2,1", "--gpu-types", "k80:0"), "--gpu-types k80: must be a whole"),
            (("--synthetic", "9,2,1", "--gpu-types", "k80:1,k80:2"), "an empty or repeated type"),
            (("--synthetic", "9,2,1", "--gpu-types", "k80:1:fast"), "must be a speed"),
            (("--synthetic", "9,2,1", "--gpu-types", "k80:1:0"), "must be a speed"),
            (("--synthetic", "9,2,1", "--partitions", NODES), "no nodes for tenants"),
            (("--trace", "nowhere.csv", "--nodes", "1"), "nowhere.csv: No such file"),
            (("--trace", str(DATA), "--nodes", "1"), "Is a directory"),
            (("--trace", GAVEL, "--nodes", "1"), "no column for tenant"),
            (("--trace", str(ROOT / "Makefile"), "--nodes", "1"), "spaces separate the words"),
            (("--trace", CHRONUS, "--nodes", "1"), "choose one with --set"),
            (("--trace", CHRONUS, "--set", "MIX9", "--nodes", "1"), "has no job in set 'MIX9'"),
            (("--trace", CHRONUS, "--set", "SLO", "--speeds", GAVEL, *TYPES), "no speeds of model"),
        ],
    )
    def test_rejects_invalid_arguments(self, args: tuple[str, ...], says: str) -> None:
        with pytest.raises(CommandError, match=re.escape(says)):
            command(*args)

    def test_file_without_jobs_shows_first_invalid_line(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.csv"
        path.write_text("tenant,gpus,submit_s,duration_s\na,many,0,1\n")
        with pytest.raises(CommandError, match="has no job; line 2 is not a number of GPUs"):
            command("--trace", str(path), "--nodes", "1")

    def test_invalid_lines_are_reported_with_results(self, tmp_path: Path) -> None:
        path, err, out = tmp_path / "bad.csv", StringIO(), StringIO()
        path.write_text("tenant,gpus,submit_s,duration_s\na,many,0,1\na,1,0,1\na,99,0,1\n")
        call_command(
            *("simulate", "--trace", str(path), "--nodes", "1", "--json"), stdout=out, stderr=err
        )
        assert json.loads(out.getvalue())["results"][0]["jobs"] == 1
        assert "1 line is not a job: line 2, gpus is not a number of GPUs" in err.getvalue()
        assert f"{DEFAULT}: 1 job never ends" in err.getvalue()

    def test_rejects_file_with_only_skipped_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "no_gpus.csv"
        path.write_text("tenant,gpus,submit_s,duration_s\na,0,0,1\na,0.0,0,1\n")
        with pytest.raises(CommandError, match="has no job; 2 lines request no GPU"):
            command("--trace", str(path), "--nodes", "1")

    def test_rejects_partition_without_nodes(self, tmp_path: Path) -> None:
        path = tmp_path / "nodes.csv"
        path.write_text("tenant,nodes\ntenant-1,2\ntenant-2,0\n")
        with pytest.raises(CommandError, match="0 nodes for tenants tenant-2, which have jobs"):
            command("--synthetic", "9,2,1", "--partitions", str(path))
