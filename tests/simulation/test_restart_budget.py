"""The restart budget of evenshare: a job runs long enough to pay for each of its early ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from evenshare_core.domain.cluster import placement_gpus
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.reasons import EndReason, PreemptionRule
from evenshare_core.fairness.gpu_time import ServiceView, job_received
from evenshare_core.policies.evenshare.options import RESTART_US, EvenshareOptions
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import ONE_TYPE, Cluster, SimJob, make_nodes
from evenshare_core.units import SECOND_US
from tests.simulation.promise_adversary import rounds_of
from tests.simulation.test_fast_forward import drawn

HOURS = 8
LENGTH_US = HOURS * 3600 * SECOND_US
LONG_JOBS = (1, 2, 3, 4)
OPTIONS = {"promises": True, "restart_budget_percent": 60, "min_runtime_s": 0}


@cache
def churn(
    percent: float, *, until_us: int = LENGTH_US, fast_forward: bool = True
) -> SimulationResult:
    """Run four long jobs of a tenant above its quota, and a short job of another every 300 s."""
    quotas = tuple(Entitlement(tenant, ONE_TYPE, 4) for tenant in (1, 2))
    jobs = [SimJob(i, 1, 2, 0, LENGTH_US) for i in LONG_JOBS]
    times = range(3600, HOURS * 3600, 300)
    short_us = 240 * SECOND_US
    jobs += [SimJob(i, 2, 1, at_s * SECOND_US, short_us) for i, at_s in enumerate(times, 5)]
    rules = Rules(
        "evenshare", {"promises": True, "restart_budget_percent": percent},
        round_us=10 * SECOND_US, lease_us=900 * SECOND_US, cold_us=60 * SECOND_US,
    )  # fmt: skip
    cluster = Cluster(make_nodes({ONE_TYPE: 1}, 8), quotas)
    return simulate(cluster, tuple(jobs), rules, until_us=until_us, fast_forward=fast_forward)


def early_ends(percent: float) -> int:
    return sum(row.reason == EndReason.PREEMPTED for row in churn(percent).books.leases)


class TestChurn:
    """A job of 240 s every 300 s used to end a lease each time."""

    def test_budget_bounds_early_ends_of_each_job(self) -> None:
        assert early_ends(0) > 80
        ends = Counter(
            row.job for row in churn(2).books.leases if row.reason == EndReason.PREEMPTED
        )
        most = LENGTH_US * 2 // (100 * RESTART_US)
        assert ends.keys() == set(LONG_JOBS)
        assert most // 2 <= max(ends.values()) <= most

    def test_use_rises_as_budget_falls(self) -> None:
        useful = {
            percent: sum(
                (row.end_us - row.start_us - row.overhead_us) * placement_gpus(row.placement)
                for row in churn(percent).books.leases
            )
            for percent in (0, 5, 2)
        }
        assert useful[0] < useful[5] < useful[2]
        assert useful[2] / useful[0] > 1.03

    @pytest.mark.parametrize("percent", [1.7, 3.3])
    def test_skipped_rounds_end_when_budget_is_enough(self, percent: float) -> None:
        """With these budgets, a job can first pay for a restart while another one waits."""
        until_us = 3 * 3600 * SECOND_US
        all_rounds = churn(percent, until_us=until_us, fast_forward=False)
        assert churn(percent, until_us=until_us).books.sha256() == all_rounds.books.sha256()


class TestBudget:
    @pytest.mark.parametrize(
        ("options", "paid_s"),
        [
            ({"promises": True}, 3000),
            ({"promises": True, "restart_budget_percent": 7}, 857.142858),
            ({"promises": True, "restart_budget_percent": 0}, 0),
            ({"promises": False}, 0),
        ],
    )
    def test_time_per_restart_follows_share(self, options: dict[str, Any], paid_s: float) -> None:
        assert EvenshareOptions(**options).paid_us == paid_s * SECOND_US

    def test_every_early_end_is_paid_for_on_drawn_pools(self) -> None:
        """Moves and ends for promises do not count. Counts are forgotten when a job ends."""
        seen: Counter[str] = Counter()
        for seed in (1, 6, 7):
            cluster, jobs, rules = drawn("evenshare", seed)
            rules = replace(rules, options=OPTIONS)
            follow(SimulationState(cluster, jobs, rules), seen)
        assert min(seen["pays"], seen["defragment"], seen["promise"], seen["forgotten"]) > 0


def follow(state: SimulationState, seen: Counter[str]) -> None:
    """Count the early ends of each job, and compare them with the memory and the budget."""
    counts: Counter[int] = Counter()
    for snapshot, decision in rounds_of(state, 4800 * SECOND_US):
        active = {row.job for row in decision.service.jobs}
        seen["forgotten"] += len(counts.keys() - active)
        counts = Counter({job: count for job, count in counts.items() if job in active})
        gpus = {job.id: job.gpus for job in snapshot.jobs}
        sums = ServiceView(decision.service).jobs
        for row in decision.preemptions:
            seen[row.rule.value] += 1
            if row.rule is not PreemptionRule.PAYS:
                continue
            counts[row.job] += 1
            ran_us = job_received(sums[row.job], snapshot.at_us) / gpus[row.job]
            assert counts[row.job] * RESTART_US <= ran_us * OPTIONS["restart_budget_percent"] / 100
        assert decision.memory.get("restarts", []) == [list(row) for row in sorted(counts.items())]
