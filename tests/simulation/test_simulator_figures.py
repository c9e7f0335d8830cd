"""Figures of a run: examples by hand, and the command's output."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.report import COLUMNS, HOUR_COLUMNS
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US

DATA = Path(__file__).parent.parent / "data"
QUOTAS = (Entitlement(1, "v100", 2),)
CLUSTER = Cluster((Node(1, "v100", 2),), QUOTAS)


def job(id_: int, gpus: int, duration_s: int, *, at_s: int = 0, **fields: Any) -> SimJob:
    return SimJob(id_, 1, gpus, at_s * SECOND_US, duration_s * SECOND_US, **fields)


def figures(*jobs: SimJob, **rules: Any) -> Figures:
    return figures_of(CLUSTER, jobs, simulate(CLUSTER, jobs, Rules("fifo", **rules)).books)


class TestFigures:
    def test_two_equal_jobs_in_sequence(self) -> None:
        found = figures(job(1, 2, 100), job(2, 2, 100))
        assert [row.rho for row in found.jobs] == pytest.approx([2.0, 200 / 300])
        assert [row.queue_s for row in found.jobs] == [0, 100]
        assert (found.mean("jct_s"), found.mean("slowdown")) == (150, 1.5)
        assert (found.sharing_loss, found.late) == (0.5, 0)
        assert (found.unfair_intervals, found.deficit) == (0, 0)

    def test_waste_and_utilisation_cover_submission_period(self) -> None:
        found = figures(job(1, 1, 100), job(2, 2, 10, at_s=50), job(3, 1, 1, at_s=100))
        assert found.utilisation == pytest.approx(0.5)  # one of two GPUs is always in use
        assert found.waste == pytest.approx(0.25)  # the other GPU is idle while a gang waits

    def test_deficit_excludes_cold_starts(self) -> None:
        jobs = (job(1, 2, 100), job(2, 2, 100))
        rules = Rules("ltgf", lease_us=40 * SECOND_US, cold_us=10 * SECOND_US)
        outcome = simulate(CLUSTER, jobs, rules)
        found = figures_of(CLUSTER, jobs, outcome.books)
        lost = sum(row.overhead_us for row in outcome.books.leases)
        assert lost > 0
        assert found.preemptions > 0
        assert found.deficit == pytest.approx(lost / (outcome.end_us))

    def test_deadline_miss_rate(self) -> None:
        jobs = (job(1, 2, 100, deadline_us=100 * SECOND_US), job(2, 2, 1, deadline_us=SECOND_US))
        assert figures(*jobs).deadline_miss_rate == 0.5
        assert figures(job(1, 2, 100)).deadline_miss_rate is None

    def test_soft_deadlines_count_lost_value(self) -> None:
        values = ((50 * SECOND_US, 10), (100 * SECOND_US, 8))
        soft = job(1, 2, 100, deadline_us=50 * SECOND_US, values=values)
        assert figures(soft).deadline_miss_rate == pytest.approx(0.2)

    def test_deadline_figures_by_class(self) -> None:
        """The jobs run one after the other on two GPUs and end at 100, 150, 160, 200 s."""
        values = ((140 * SECOND_US, 10), (150 * SECOND_US, 5))
        jobs = (
            job(1, 2, 100, deadline_us=100 * SECOND_US),
            job(2, 2, 50, deadline_us=140 * SECOND_US, values=values),
            job(3, 2, 10, deadline_us=159 * SECOND_US),
            job(4, 2, 40),
        )
        rows = figures(*jobs).deadlines
        assert (rows.strict_miss_rate, rows.soft_miss_rate) == (0.5, 0.5)
        assert (rows.miss_rate, rows.reward_rate) == (0.5, 0.5)
        assert rows.best_effort_jct_s == 200
        assert rows.suspensions == 0

    def test_deadline_class_without_jobs_is_none(self) -> None:
        rows = figures(job(1, 2, 100, deadline_us=100 * SECOND_US)).deadlines
        assert (rows.strict_miss_rate, rows.reward_rate) == (0, 1)
        assert (rows.soft_miss_rate, rows.best_effort_jct_s) == (None, None)
        assert set(figures(job(1, 2, 100)).deadlines.published().values()) == {None}

    def test_suspensions_count_only_deadline_jobs(self) -> None:
        """Two jobs take turns of 40 s, so each is suspended twice."""
        jobs = (job(1, 2, 100, deadline_us=300 * SECOND_US), job(2, 2, 100))
        outcome = simulate(CLUSTER, jobs, Rules("ltgf", lease_us=40 * SECOND_US))
        taken = [row.job for row in outcome.books.leases if row.reason == "not_renewed"]
        rows = figures_of(CLUSTER, jobs, outcome.books).deadlines
        assert taken.count(1) > 0
        assert taken.count(2) > 0
        assert rows.suspensions == taken.count(1)

    def test_deadline_miss_rate_ignores_cancelled_jobs(self) -> None:
        jobs = (
            job(1, 2, 100, deadline_us=SECOND_US),
            job(2, 2, 1, deadline_us=500 * SECOND_US, cancel_us=SECOND_US),
        )
        assert figures(*jobs).deadline_miss_rate == 1

    def test_deadline_miss_rate_counts_unfinished_jobs(self) -> None:
        jobs = (job(1, 2, 100), job(2, 99, 1, deadline_us=SECOND_US))
        assert figures(*jobs).deadline_miss_rate == 1

    def test_mean_is_none_without_jobs(self) -> None:
        assert figures().mean("jct_s") is None


def command(*args: str) -> str:
    out = StringIO()
    call_command("simulate", *args, stdout=out)
    return out.getvalue()


SMALL = ("--synthetic", "60,3,2", "--nodes", "2")


class TestSimulateCommand:
    def test_prints_single_json_object(self) -> None:
        told = json.loads(command(*SMALL, "--policy", "ltgf,fifo", "--floor", "--json"))
        assert [row["policy"] for row in told["results"]] == ["infinite", "ltgf", "fifo"]
        assert set(told["results"][1]) == {
            *("policy", "jobs", "avg_jct_s", "avg_queue_s", "avg_slowdown", "p99_slowdown"),
            *("sharing_loss_jobs", "tenant_unfair_intervals", "tenant_deficit"),
            *("tenant_daily_deficit", "late_vs_fair_reference"),
            *("gpu_utilisation", "waste", "preemptions", "deadline_miss_rate"),
            *("deadline_reward_rate", "strict_miss_rate", "soft_miss_rate", "best_effort_jct_s"),
            *("slo_suspensions", "revenue_fairness", "rounds", "cpu_s", "sha256"),
        }
        assert all(row["jobs"] == 60 for row in told["results"])
        assert told["results"][0]["avg_queue_s"] == 0

    def test_hash_depends_only_on_seed(self) -> None:
        def sha256(seed: str) -> str:
            told = json.loads(command(*SMALL, "--json", "--seed", seed))
            return str(told["results"][0]["sha256"])

        assert sha256("1") == sha256("1") != sha256("2")

    def test_runs_tenants_on_separate_partitions(self, tmp_path: Path) -> None:
        command(
            *("--trace", str(DATA / "philly_oracle_slice.csv.gz"), "--policy", "fifo"),
            *("--partitions", str(DATA / "philly_oracle_nodes.csv"), "--lease-s", "0"),
            *("--jobs-out", str(tmp_path)),
        )
        with (tmp_path / "jobs_fifo.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert tuple(rows[0]) == COLUMNS
        assert len(rows) == 715
        assert sum(row["queue_s"] != "0" for row in rows) == 7  # the reference has 7 too

    def test_tenant_hours_file_sums_to_deficit(self, tmp_path: Path) -> None:
        line = json.loads(
            command(*SMALL, "--policy", "fifo", "--json", "--jobs-out", str(tmp_path))
        )
        with (tmp_path / "hours_fifo.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert tuple(rows[0]) == HOUR_COLUMNS
        assert {row["tenant"] for row in rows} == {"tenant-1", "tenant-2", "tenant-3"}
        short, deserved = (
            sum(float(row[name]) for row in rows) for name in ("deficit_gpu_s", "deserved_gpu_s")
        )
        assert line["results"][0]["tenant_deficit"] == pytest.approx(short / deserved)

    def test_writes_self_contained_html_page(self, tmp_path: Path) -> None:
        command(*SMALL, "--policy", "ltgf,srtf", "--report", str(tmp_path / "r.html"))
        page = (tmp_path / "r.html").read_text()
        assert page.count("<figure") == 7
        assert not re.search(r"(src|href)=|https?:|\bnan\b|\binf\b|None", page)
        assert "income that follows contributions" in page
        assert "tenant-1" in page  # in the table of lenders

    def test_chart_omits_utilisation_of_infinite_gpus(self, tmp_path: Path) -> None:
        command(*SMALL, "--policy", "fifo", "--floor", "--report", str(tmp_path / "r.html"))
        chart = (tmp_path / "r.html").read_text().split("Utilisation over time")[2]
        lines = chart.split("</figure>")[0]
        assert 'class="s1"' in lines
        assert 'class="s0"' not in lines

    def test_supports_gpu_types_of_different_speed(self) -> None:
        slow, fast = (
            json.loads(command("--synthetic", "30,2,2", "--gpu-types", types, "--json"))
            for types in ("k80:4", "k80:2,v100:2:3")
        )
        assert fast["cluster"] == slow["cluster"]
        assert fast["results"][0]["avg_jct_s"] < slow["results"][0]["avg_jct_s"]
