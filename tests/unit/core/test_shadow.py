"""Test the observation of another scheduler, and what a policy would have decided instead."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.pool_files import NamedNode, PoolQuota
from evenshare_core.simulation.shadow import (
    ObservedJob,
    Watch,
    WatchedPool,
    decide_now,
    median_length,
    observed_side,
    policy_side,
    watched_pool,
)
from evenshare_core.simulation.shadow_report import UNKNOWN, shadow_csv, shadow_report
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, synthetic
from evenshare_core.units import HOUR_US, SECOND_US

FOREVER_US = 10_000 * HOUR_US
BEGIN = 1_700_000_000 * SECOND_US
NODES = (NamedNode("n1", Node(1, "a100", 4)), NamedNode("n2", Node(2, "a100", 4)))
QUOTAS = (
    PoolQuota("", "bio", Entitlement(0, "a100", 4)),
    PoolQuota("", "physics", Entitlement(0, "a100", 4)),
)


def at(seconds: float) -> int:
    return BEGIN + round(seconds * SECOND_US)


def job(
    name: str,
    tenant: str,
    gpus: int = 4,
    *,
    ready: float = 0,
    start: float | None = None,
    end: float | None = None,
    node: str = "n1",
    limit_s: int | None = None,
) -> ObservedJob:
    started_us = None if start is None else at(start)
    return ObservedJob(
        name, tenant, gpus, at(ready), ("a100",), started_us,
        None if end is None else at(end), ((node, gpus),) if start is not None else (),
        None if limit_s is None else limit_s * SECOND_US,
    )  # fmt: skip


def pool(*jobs: ObservedJob, seconds: float = 3600) -> WatchedPool:
    return watched_pool(Watch(NODES, jobs, at(0), at(seconds)), QUOTAS)


def rules(policy: str = "ltgf", lease_s: int = 600) -> Rules:
    return Rules(policy, round_us=10 * SECOND_US, lease_us=lease_s * SECOND_US)


# `bio` held both nodes before the observation, and had more jobs queued. `physics` waits half an
# hour.
UNFAIR = (
    job("b1", "bio", ready=-5000, start=-5000, end=1800),
    job("b2", "bio", ready=-5000, start=-5000, end=3000, node="n2"),
    job("p1", "physics", ready=-60, start=1800, end=2400),
)


class TestObservedSide:
    def test_reports_waits_gpu_time_and_utilisation(self) -> None:
        watched = pool(*UNFAIR)
        side = observed_side(watched, "Slurm")
        waits = {watched.jobs[key].name: row.waited_us for key, row in side.jobs.items()}
        assert waits == {"b1": 0, "b2": 0, "p1": 1860 * SECOND_US}
        gpu_s = {watched.tenants[key]: us // SECOND_US for key, us in side.gpu_us.items()}
        # GPU-time since the observation began: 4 GPUs for 1,800 s and for 3,000 s, and 4 for 600 s.
        assert gpu_s == {"bio": 4 * 4800, "physics": 4 * 600}
        assert side.figures.utilisation == pytest.approx((4800 + 600) / (2 * 3600))

    def test_orders_simultaneous_jobs_by_number(self) -> None:
        watched = pool(job("10", "bio"), job("9", "bio"), job("9_2", "bio"), seconds=60)
        assert [row.name for row in watched.jobs.values()] == ["9", "9_2", "10"]

    def test_uses_only_run_time_of_jobs_ended_before_watch(self) -> None:
        watched = pool(
            job("old", "bio", ready=-500, start=-400, end=-100),
            job("new", "bio", ready=10),
        )
        assert [row.name for row in watched.jobs.values()] == ["new"]
        assert watched.sims[1].duration_us == 300 * SECOND_US


class TestPolicySide:
    def test_expired_lease_yields_to_tenant_below_share(self) -> None:
        watched = pool(*UNFAIR)
        side = policy_side(watched, rules())
        names = {row.name: key for key, row in watched.jobs.items()}
        assert side.jobs[names["p1"]].started_us == at(0)
        asked = [key for key, row in side.jobs.items() if row.yields]
        assert asked
        assert set(asked) <= {names["b1"], names["b2"]}
        assert side.figures.deficit is not None
        before = observed_side(watched, "Slurm").figures.deficit
        assert before is not None
        assert side.figures.deficit < before

    def test_waits_for_unexpired_lease(self) -> None:
        young = (replace(one, started_us=at(-100)) for one in UNFAIR[:2])
        watched = pool(*young, UNFAIR[2])
        side = policy_side(watched, rules())
        assert side.jobs[3].started_us == at(500)

    def test_decide_now_uses_current_state(self) -> None:
        decision = decide_now(pool(*UNFAIR, seconds=600), rules())
        assert [row.job for row in decision.grants] == [3]
        assert len(decision.ends) == 1
        assert decision.ends[0].job in {1, 2}
        assert decide_now(pool(*UNFAIR), rules()).grants == ()

    def test_accepts_job_of_zero_length(self) -> None:
        watched = pool(*UNFAIR, job("quick", "bio", 1, ready=3100, start=3100, end=3100))
        assert decide_now(watched, rules()).at_us == at(3600)
        assert observed_side(watched, "Slurm").jobs[4].held_us == 0

    def test_does_not_run_cancelled_job(self) -> None:
        young = (replace(one, started_us=at(-100)) for one in UNFAIR[:2])
        watched = pool(*young, job("gone", "bio", ready=-30, end=5), seconds=60)
        side = policy_side(watched, rules())
        assert side.jobs[3].started_us is None
        assert side.jobs[3].ended_us == at(5)
        assert side.jobs[3].waited_us == 35 * SECOND_US

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_supports_every_policy(self, policy: str) -> None:
        watched = pool(*UNFAIR, job("p2", "physics", 2, ready=700, start=2400, end=2500))
        side = policy_side(watched, rules(policy))
        assert side.jobs.keys() == watched.jobs.keys()
        assert decide_now(watched, rules(policy)).at_us == at(3600)


class TestUnfinishedWork:
    @pytest.mark.parametrize(
        ("unfinished", "work_s"),
        [
            (job("x", "physics", ready=0), 100),
            (job("x", "nobody", ready=0), 100),
            (job("x", "physics", ready=0, limit_s=60), 60),
            (job("x", "physics", ready=0, start=0, node="n2"), 1200),
            (job("x", "physics", ready=0, start=0, node="n2", limit_s=900), 900),
            (job("x", "physics", ready=0, start=0, node="n2", limit_s=600), 601),
        ],
        ids=[
            "median of its tenant",
            "median of all",
            "capped by its limit",
            "twice its run time so far",
            "run time capped by its limit",
            "a second beyond its limit",
        ],
    )
    def test_is_guessed_for_unfinished_jobs(self, unfinished: ObservedJob, work_s: int) -> None:
        watched = pool(job("p", "physics", start=0, end=100), unfinished, seconds=600)
        assert watched.sims[2].duration_us == work_s * SECOND_US
        assert watched.guessed == {2}

    @pytest.mark.parametrize(
        ("ended", "running", "median"),
        [
            ([5], [], 5),
            ([1, 2, 3], [], 2),
            ([1, 2, 3, 4], [], 2),
            ([1, 2, 3], [9, 9, 9], 3),
            # more than half of the jobs have run longer than any job that ended
            ([1, 2], [9, 9, 9], 9),
            ([4, 8], [1, 2, 3], 4),  # short jobs that are still running add no information
            ([6], [6], 6),
        ],
    )
    def test_median_counts_running_jobs_by_elapsed_time(
        self, ended: list[int], running: list[int], median: int
    ) -> None:
        assert median_length(ended, running) == median

    def test_is_one_hour_if_no_job_has_ended(self) -> None:
        assert pool(job("x", "bio"), seconds=60).sims[1].duration_us == HOUR_US


class TestUnplaceableJob:
    def test_is_omitted_and_listed_in_report(self) -> None:
        watched = pool(
            job("b1", "bio", start=0, end=900),
            job("twice", "bio", start=0, end=900),
            job("elsewhere", "bio", start=0, end=900, node="n9"),
            replace(job("cpus", "bio"), gpus=0),
            seconds=60,
        )
        assert watched.left_out == ("cpus", "elsewhere", "twice")
        assert [row.name for row in watched.jobs.values()] == ["b1"]
        text = shadow_report("t", watched, [observed_side(watched, "Slurm")])
        assert "3 (cpus, elsewhere, twice)" in text


class TestReport:
    def test_lists_jobs_of_both_sides_and_unknowns(self) -> None:
        watched = pool(*UNFAIR)
        sides = [observed_side(watched, "Slurm"), policy_side(watched, rules())]
        text = shadow_report("Watch", watched, sides, ["Looks that failed: 2."])
        assert f"{len(UNFAIR)} jobs of 2 tenants on " in text
        assert "| p1 | physics | 4 | 11-14 22:12:20 | 11-14 22:43:20 | 11-14 22:13:20 |" in text
        assert "Looks that failed: 2." in text
        assert UNKNOWN in text
        assert "Nothing was submitted" in text
        rows = csv.DictReader(io.StringIO(shadow_csv(watched, sides)))
        assert {row["job"]: row["Slurm_waited_s"] for row in rows}["p1"] == "1860"

    def test_escapes_markup_in_job_names(self) -> None:
        watched = pool(job("a|b<script>", "bio"), seconds=60)
        text = shadow_report("t", watched, [observed_side(watched, "Slurm")])
        assert "a\\|b&lt;script>" in text
        assert "1 job of 1 tenant on 8 GPUs of 2 nodes, from " in text

    def test_is_written_without_jobs(self) -> None:
        watched = pool(seconds=60)
        sides = [observed_side(watched, "Slurm"), policy_side(watched, rules())]
        assert "No job would have been asked" in shadow_report("t", watched, sides)


class TestIdenticalScheduler:
    """All jobs end while observed, so no duration is estimated and schedules must be equal."""

    @pytest.mark.parametrize("hours", [0, 2, 3.5])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_both_sides_are_equal_from_any_instant(self, seed: int, hours: float) -> None:
        workload = synthetic(seed=seed, jobs=120, tenants=3, hours=4)
        nodes = tuple(NamedNode(f"n{index}", Node(index, "gpu", 8)) for index in range(1, 5))
        same = Rules("fifo", round_us=10 * SECOND_US, lease_us=FOREVER_US)
        quotas = tuple(Entitlement(tenant, "gpu", 10) for tenant in workload.tenants)
        cluster = Cluster(tuple(one.node for one in nodes), quotas)
        books = simulate(cluster, workload.jobs, same).books
        ran = {row.job: row for row in books.leases}
        seen = tuple(
            ObservedJob(
                f"{one.id:03}", workload.tenants[one.tenant], one.gpus, one.submitted_us, (),
                ran[one.id].start_us, ran[one.id].end_us,
                tuple((f"n{node}", gpus) for node, gpus in ran[one.id].placement),
            )
            for one in workload.jobs
            if one.id in ran
        )  # fmt: skip
        end_us = max(row.end_us for row in books.jobs)
        from_us = round(hours * HOUR_US)
        lines = [
            PoolQuota("", name, Entitlement(0, "gpu", 10)) for name in workload.tenants.values()
        ]
        watched = watched_pool(Watch(nodes, seen, from_us, end_us), lines)
        assert watched.left_out == ()
        happened, decided = observed_side(watched, "it"), policy_side(watched, same)
        assert decided.jobs == happened.jobs
        assert decided.gpu_us == happened.gpu_us
        assert decided.figures.published() == happened.figures.published()
        assert len(watched.jobs) > 20
