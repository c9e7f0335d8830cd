"""Pools of `simulate` from files, tested from the command line to the leases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.core.management import CommandError

from tests.simulation.simulate_runs import GAVEL, JOBS, ONE, QUOTAS, WITH_MODEL, Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


TWO_TENANTS = ("a1,a,4,0,100", "b1,b,4,0,100")


class TestQuotas:
    def test_limit_borrowing_under_strict_policies(self, runs: Runs) -> None:
        args = (*runs.trace(*TWO_TENANTS), *ONE, "--policy", "yarn_cs")
        even = runs.run(*args, "--quotas", runs.file("q.csv", QUOTAS, "a,gpu,2", "b,gpu,2"))
        assert even["jobs"] == 2
        strict = ("--option", "yarn_cs.oversized=false")
        quotas = runs.file("r.csv", QUOTAS, "a,gpu,4", "b,gpu,0")
        assert runs.run(*args, *strict, "--quotas", quotas)["jobs"] == 1
        assert list(runs.times("yarn_cs")) == ["a1"]
        assert "yarn_cs: 1 job never ends" in runs.err.getvalue()

    def test_support_modes_and_limits_of_entitlements(self, runs: Runs) -> None:
        header = f"{QUOTAS},mode,borrow_limit,lend_limit"
        args = (*runs.trace("a1,a,3,0,100"), *ONE, "--quotas")
        borrows = runs.file("q.csv", header, "a,gpu,2,,,", "b,gpu,2,LEND_AND_BORROW,,")
        assert runs.run(*args, borrows)["jobs"] == 1
        for number, (own, other) in enumerate(
            (("LEND,,", ",,"), (",0,", ",,"), (",,", "RESERVE,,"), (",,", ",,0"))
        ):
            quotas = runs.file(f"q{number}.csv", header, f"a,gpu,2,{own}", f"b,gpu,2,{other}")
            assert runs.run(*args, quotas)["jobs"] == 0, (own, other)

    def test_json_matches_csv(self, runs: Runs) -> None:
        args = (*runs.trace(*TWO_TENANTS, "b2,b,2,5,60"), *ONE, "--quotas")
        of_csv = runs.file("q.csv", f"{QUOTAS},borrow_limit", "b,gpu,3,1", "a,gpu,1,3")
        rows = [
            {"tenant": "b", "gpu_type": "gpu", "gpus": 3, "borrow_limit": 1},
            {"tenant": "a", "gpu_type": "gpu", "gpus": "1", "borrow_limit": 3, "mode": None},
        ]
        told = [runs.run(*args, of_csv)]
        told += [runs.run(*args, runs.file("q.json", json.dumps(rows)))]
        told += [runs.run(*args, runs.file("r.json", json.dumps({"quotas": rows})))]
        assert len({row["sha256"] for row in told}) == 1

    def test_file_order_breaks_ties(self, runs: Runs) -> None:
        """Two quotas of one GPU are scaled down to one GPU, kept by the first quota in the file."""
        args = (
            *runs.trace("a1,a,1,0,100", "b1,b,1,0,100"), "--nodes", "1", "--gpus-per-node", "1",
            *("--policy", "yarn_cs", "--option", "yarn_cs.oversized=false", "--quotas"),
        )  # fmt: skip
        runs.run(*args, runs.file("q.csv", QUOTAS, "a,gpu,1", "b,gpu,1"))
        assert list(runs.times("yarn_cs")) == ["a1"]
        runs.run(*args, runs.file("q.csv", QUOTAS, "b,gpu,1", "a,gpu,1"))
        assert list(runs.times("yarn_cs")) == ["b1"]

    def test_quotas_above_capacity_are_scaled_in_figures(self, runs: Runs) -> None:
        args = (*runs.trace(*TWO_TENANTS), *ONE, "--quotas")
        fit = runs.run(*args, runs.file("q.csv", QUOTAS, "a,gpu,2", "b,gpu,2"))
        more = runs.run(*args, runs.file("r.csv", QUOTAS, "a,gpu,40", "b,gpu,40"))
        assert {**more, "cpu_s": 0} == {**fit, "cpu_s": 0}

    def test_warn_about_tenants_without_quota(self, runs: Runs) -> None:
        quotas = runs.file("q.csv", QUOTAS, "a,gpu,2", "B,gpu,2")
        runs.run(*runs.trace(*TWO_TENANTS), *ONE, "--quotas", quotas)
        assert "1 tenant has jobs and no quota: b" in runs.err.getvalue()

    def test_portal_file_uses_quotas_valid_at_start(self, runs: Runs) -> None:
        header = "tenant,pool,gpu_type,gpus,from,until,mode,borrow_limit,lend_limit"
        lines = (
            "a,philly,gpu,9,2017-09-01,2017-10-01,LEND,,",
            "a,philly,gpu,4,2017-10-01,,LEND,,",
            "b,philly,gpu,0,now,,LEND,,",
        )
        jobs = ("a1,a,4,2017-10-09,100", "b1,b,4,2017-10-09,100")
        args = (*runs.trace(*jobs), *ONE, "--quotas", runs.file("q.csv", header, *lines))
        assert runs.run(*args, "--start", "2017-10-09")["jobs"] == 1
        for start, says in (
            ("2017-09-30", "line 2, until is during the run"),
            (None, "line 2, from needs --start, or leave it empty"),
        ):
            with pytest.raises(CommandError, match=says):
                runs.run(*args, *(("--start", start) if start else ()))


class TestStart:
    def test_aligns_rounds_and_keeps_submissions(self, runs: Runs) -> None:
        """Rounds are at multiples of their interval, and begin at or after the start."""
        args = (*runs.trace("a1,a,1,1007,100"), *ONE, "--round-s", "30")
        plain = runs.run(*args)
        later = runs.run(*args, "--start", "1005")
        assert runs.times() == {"a1": (1020, 1120)}
        assert (plain["sha256"], plain["avg_jct_s"]) == (later["sha256"], 113)

    def test_accepts_date_for_dated_jobs(self, runs: Runs) -> None:
        args = (*runs.trace("a1,a,1,2017-10-09T00:00:07,100"), *ONE, "--round-s", "30")
        runs.run(*args, "--start", "2017-10-09T00:00:01+00:00")
        start_s, end_s = runs.times()["a1"]
        assert (start_s % 3600, end_s - start_s) == (30, 100)

    def test_rejects_start_after_first_submission(self, runs: Runs) -> None:
        args = (*runs.trace("a1,a,1,7,100", "a2,a,1,9,100"), *ONE)
        says = "--start: 1 job is submitted before it, first 'a1' at 7 s; remove them, or start"
        with pytest.raises(CommandError, match=re.escape(says)):
            runs.run(*args, "--start", "8")


class TestNodes:
    def test_node_list_names_appear_in_leases(self, runs: Runs) -> None:
        nodes = runs.file("n.csv", "name,gpu_type,gpus", "big,v100,4", "small,v100,2", "off,k80,0")
        jobs = ("a1,a,2,0,10", "a2,a,4,0,20", "a3,a,6,0,30")
        runs.run(*runs.trace(*jobs), "--node-list", nodes, "--policy", "fifo")
        told = {
            row["job"]: (row["nodes"], row["end_reason"]) for row in runs.rows("leases", "fifo")
        }
        assert told == {
            "a1": ("small:2", "finished"),
            "a2": ("big:4", "finished"),
            "a3": ("big:4 small:2", "finished"),
        }

    def test_prices_are_set_by_type(self, runs: Runs) -> None:
        jobs = runs.trace("a1,a,4,0,3600,0.5", header=f"{JOBS},max_price")
        args = (*jobs, *ONE, "--quotas", runs.file("q.csv", QUOTAS, "a,gpu,1", "b,gpu,3"))
        assert runs.run(*args)["jobs"] == 1  # the price of an empty pool is 0
        prices = runs.file("p.csv", "gpu_type,base,theta", "gpu,0.000001,1.5")
        cheap = runs.run(*args, "--prices", prices)
        dear = runs.run(*args, "--prices", runs.file("p.csv", "gpu_type,base,theta", "gpu,9,64"))
        assert cheap["sha256"] != dear["sha256"]


class TestJobOverheads:
    def test_trace_overrides_profiles_and_options(self, runs: Runs) -> None:
        header = f"{JOBS},model,checkpoint_s"
        jobs = ("a1,a,1,0,100,,", "a2,a,1,0,100,bert,", "a3,a,1,0,100,bert,0", "a4,a,1,0,100,,3.5")
        profiles = runs.file("p.csv", "model,cold_s,checkpoint_s", "bert,9,7")
        args = (*runs.trace(*jobs, header=header), *ONE, "--lease-s", "40", "--policy", "fifo")
        runs.run(*args, "--profiles", profiles, "--checkpoint-s", "1")
        ends = {name: end for name, (_, end) in runs.times("fifo").items()}
        assert ends == {"a1": 102, "a2": 114, "a3": 100, "a4": 107}

    def test_resumed_jobs_pay_cold_start(self, runs: Runs) -> None:
        jobs = ("a1,a,4,0,100,5", "b1,b,4,0,100,11")
        args = (*runs.trace(*jobs, header=f"{JOBS},cold_s"), *ONE, "--lease-s", "40")
        runs.run(*args, "--round-s", "10", "--policy", "ltgf")
        leases = runs.rows("leases", "ltgf")
        held = {
            name: sum(float(r["end_s"]) - float(r["start_s"]) for r in leases if r["job"] == name)
            for name in ("a1", "b1")
        }
        resumed = {name: sum(r["job"] == name for r in leases) - 1 for name in held}
        assert min(resumed.values()) > 0
        assert held == {"a1": 100 + 5 * resumed["a1"], "b1": 100 + 11 * resumed["b1"]}

    def test_are_written_to_workload_file(self, runs: Runs) -> None:
        jobs = runs.trace("a1,a,1,0,100,0,3", header=f"{JOBS},cold_s,checkpoint_s")
        again = str(runs.folder / "again.csv")
        short = (*ONE, "--lease-s", "40", "--policy", "ltgf")
        first = runs.run(*jobs, *short, "--workload-out", again)
        told = runs.run("--trace", again, *short)
        assert told["sha256"] == first["sha256"]
        assert told["avg_jct_s"] == 106


TWO_NODES = ("--nodes", "2", "--gpus-per-node", "4", "--policy", "fifo")
SPREAD = ("--option", "fifo.spread=true")
# Two nodes of four GPUs with three in use each: a gang of two gets a GPU on each.
TAKEN = ("x1,a,3,0,1000,", "x2,a,3,0,1000,", "gang,a,2,0,100,bert")


class TestMultiNodeGang:
    def ends(self, runs: Runs, *args: str) -> float:
        runs.run(*runs.trace(*TAKEN, header=WITH_MODEL), *args)
        return runs.times("fifo")["gang"][1]

    def test_spread_option_starts_gang_with_penalty(self, runs: Runs) -> None:
        assert self.ends(runs, *TWO_NODES) == 1100
        assert self.ends(runs, *TWO_NODES, *SPREAD) == 100
        assert self.ends(runs, *TWO_NODES, *SPREAD, "--spread-penalty", "0.2") == 125

    def test_penalty_follows_t1_and_t2_of_profile(self, runs: Runs) -> None:
        """UniSched (2), two GPUs: 0.4 + 0.1 on one node, 0.4 + 0.6 on two, so half the speed."""
        profiles = runs.file("p.csv", "model,iteration_s,t1_s,t2_s", "bert,0.4,0.1,0.6")
        args = (*TWO_NODES, *SPREAD, "--spread-penalty", "0.2", "--profiles", profiles)
        assert self.ends(runs, *args) == 200

    def test_penalty_follows_speeds_file(self, runs: Runs) -> None:
        speeds = runs.file("s.csv", "job_type,scale,v100,v100_unc", "bert,1,9,9", "bert,2,10,4")
        pool = ("--gpu-types", "v100:2", "--gpus-per-node", "4", "--policy", "fifo", *SPREAD)
        trace = runs.trace(*TAKEN, header=WITH_MODEL)
        runs.run(*trace, *pool, "--speeds", speeds)
        assert runs.times("fifo")["gang"] == (0, 250)

    def test_spread_with_real_speeds_file_changes_leases(self, runs: Runs) -> None:
        drawn = f"jobs=80,tenants=4,hours=1,models={GAVEL}"
        args = ("--synthetic", drawn, "--gpu-types", "k80:2,p100:1,v100:1", "--policy", "srtf")
        assert runs.run(*args)["jobs"] == 80
        leases = runs.rows("leases", "srtf")
        runs.run(*args, "--option", "srtf.spread=true")
        assert any(" " in row["nodes"] for row in runs.rows("leases", "srtf"))
        assert leases != runs.rows("leases", "srtf")


class TestProfiles:
    def test_speeds_follow_iteration_time_of_gang(self, runs: Runs) -> None:
        """On one GPU v100 is 4 times as fast; with four, 0.4 + 3 x 0.2 and 0.1 + 3 x 0.05."""
        header = "model,gpu_type,iteration_s,t1_s,t2_s"
        profiles = runs.file("p.csv", header, "m,k80,0.4,0.2,0.2", "m,v100,0.1,0.05,0.05")
        pool = ("--gpu-types", "k80:1,v100:1", "--gpus-per-node", "4", "--policy", "fifo")
        jobs = ("one,a,1,0,100,m,v100", "slow,a,1,0,100,m,k80", "four,b,4,200,100,m,v100")
        runs.run(
            *runs.trace(*jobs, header=f"{WITH_MODEL},gpu_types"), *pool, "--profiles", profiles
        )
        ends = {name: end - start for name, (start, end) in runs.times("fifo").items()}
        assert ends == {"one": 25, "slow": 100, "four": 25}

    def test_tenant_profile_overrides_common_one(self, runs: Runs) -> None:
        profiles = runs.file(
            *("p.csv", "model,tenant,gpu_type,speed"),
            *("m,,v100,1", "m,,k80,1", "m,b,v100,2", "m,b,k80,1"),
        )
        pool = ("--gpu-types", "k80:1,v100:1", "--gpus-per-node", "4", "--policy", "fifo")
        jobs = ("of-a,a,1,0,100,m,v100", "of-b,b,1,0,100,m,v100")
        runs.run(
            *runs.trace(*jobs, header=f"{WITH_MODEL},gpu_types"), *pool, "--profiles", profiles
        )
        assert {name: end for name, (_, end) in runs.times("fifo").items()} == {
            "of-a": 100,
            "of-b": 50,
        }


class TestEstimates:
    @pytest.mark.parametrize(
        ("known", "order"),
        [
            ("true", ["first", "short", "middle", "long"]),
            # `short` has no estimate and comes last
            ("given", ["first", "middle", "long", "short"]),
            ("none", ["first", "long", "middle", "short"]),  # the other jobs follow by arrival
        ],
    )
    def test_estimates_option_sets_sjf_order(
        self, runs: Runs, known: str, order: list[str]
    ) -> None:
        jobs = ("first,a,4,0,50,", "long,a,4,1,100,90", "middle,a,4,2,40,40", "short,a,4,3,20,")
        args = (*runs.trace(*jobs, header=f"{JOBS},estimate_s"), *ONE, "--policy", "sjf")
        again = str(runs.folder / "again.csv")
        first = runs.run(*args, "--estimates", known, "--workload-out", again)
        times = runs.times("sjf")
        assert sorted(times, key=lambda name: times[name]) == order
        told = runs.run("--trace", again, *args[2:], "--estimates", known)
        assert told["sha256"] == first["sha256"]
