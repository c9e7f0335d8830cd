"""Test AlloX: the matching, by hand and against scipy, and which tenants' jobs are matched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US
from evenshare_research.policies.assignment import assign
from tests.papers.test_baselines import Times, job, times

TYPES = ("k80", "v100")


class TestAssignment:
    @given(st.integers(1, 7), st.integers(0, 4), st.integers(0, 30), st.integers(0, 10**6))
    def test_matches_scipy_cost(self, rows: int, more: int, most: int, seed: int) -> None:
        costs = np.random.default_rng(seed).integers(0, most + 1, (rows, rows + more))
        columns = assign(costs)
        assert len(set(columns)) == rows
        expected = costs[linear_sum_assignment(costs)].sum()
        assert costs[np.arange(rows), columns].sum() == expected

    def test_is_exact_for_large_costs(self) -> None:
        rng = np.random.default_rng(5)
        costs = rng.integers(0, 2 * 10**15, (120, 240))
        columns = assign(costs)
        assert costs[np.arange(120), columns].sum() == costs[linear_sum_assignment(costs)].sum()

    def test_breaks_ties_by_first_column(self) -> None:
        assert assign(np.ones((2, 3), np.int64)) == [0, 1]

    def test_rejects_more_rows_than_columns(self) -> None:
        with pytest.raises(ValueError, match="3 rows cannot each have one of 2 columns"):
            assign(np.zeros((3, 2), np.int64))


def played(
    jobs: list[SimJob], speeds: dict[int, tuple[int, int]] | None = None, *,
    quotas: dict[int, int] | None = None, gpus: tuple[int, int] = (4, 4), **options: Any,
) -> dict[int, Times]:  # fmt: skip
    """Run jobs on a node of K80s and a node of V100s; `speeds` has thousandths by profile."""
    result = simulate(pool(speeds, quotas, gpus), tuple(jobs), rules(**options))
    return times(result)


def pool(
    speeds: dict[int, tuple[int, int]] | None = None,
    quotas: dict[int, int] | None = None,
    gpus: tuple[int, int] = (4, 4),
) -> Cluster:
    profiles = {
        id_: Profile(id_, 1, tuple((name, speed) for name, speed in zip(TYPES, row, strict=True)
                                   if speed))
        for id_, row in (speeds or {}).items()
    }  # fmt: skip
    owners = (quotas or {1: 4}).items()
    return Cluster(
        tuple(Node(i, name, gpus[i - 1]) for i, name in enumerate(TYPES, start=1)),
        tuple(Entitlement(tenant, name, count) for tenant, count in owners for name in TYPES),
        profiles=profiles,
    )


def rules(**options: Any) -> Rules:
    return Rules("allox", options, lease_us=100 * SECOND_US)


class TestMatching:
    def test_minimizes_total_completion_time(self) -> None:
        """Each job takes 100 s on K80s.

        On V100s they take 25 s and 80 s. The lowest total is 25 + 100.
        """
        speeds = {1: (1000, 4000), 2: (1000, 1250)}
        found = played([job(1, 4, 100, profile=2), job(2, 4, 100, profile=1)], speeds)
        assert found == {1: Times(0, 100), 2: Times(0, 25)}

    def test_runs_shorter_job_first(self) -> None:
        """V100s are four times as fast for both jobs: 20 + (20 + 25) < 25 + 80 < 20 + 100."""
        speeds = {1: (1000, 4000)}
        jobs = [job(1, 4, 100, profile=1), job(2, 4, 80, profile=1)]
        assert played(jobs, speeds) == {1: Times(20, 45), 2: Times(0, 20)}

    @pytest.mark.parametrize(("busy_s", "expected"), [(200, Times(1, 101)), (50, Times(50, 75))])
    def test_counts_remaining_time_of_running_jobs(self, busy_s: int, expected: Times) -> None:
        """The job takes 25 s on V100s after the other job ends, or 100 s on K80s at once."""
        speeds = {1: (1000, 4000)}
        jobs = [job(1, 4, busy_s, gpu_types=("v100",)), job(2, 4, 100, at_s=1, profile=1)]
        assert played(jobs, speeds)[2] == expected

    def test_weighs_gangs_by_gpu_time(self) -> None:
        """On 4 GPUs, 400 s of one GPU count as 100 s, which is less than 150 s of four GPUs."""
        jobs = [job(1, 4, 150), job(2, 1, 400)]
        found = played(jobs, gpus=(4, 0))
        assert found == {1: Times(400, 550), 2: Times(0, 400)}

    def test_skips_gpu_types_without_profile_speed(self) -> None:
        speeds = {1: (0, 1000)}
        jobs = [job(i, 4, 50, profile=1) for i in (1, 2, 3)]
        found = played(jobs, speeds)
        assert [found[i].start_s for i in (1, 2, 3)] == [0, 50, 100]

    def test_uses_configured_runtime_without_estimate(self) -> None:
        jobs = [job(1, 4, 100), job(2, 4, 100, estimate_us=None)]
        assert played(jobs, gpus=(4, 0), unknown_s=99)[2].start_s == 0
        assert played(jobs, gpus=(4, 0), unknown_s=101)[1].start_s == 0

    def test_never_preempts(self) -> None:
        jobs = [job(1, 4, 1000), job(2, 4, 10, at_s=5)]
        assert played(jobs, gpus=(4, 0)) == {1: Times(0, 1000), 2: Times(1000, 1010)}


class TestProgress:
    JOBS = [
        job(1, 4, 100), job(2, 4, 10, at_s=5), job(3, 4, 90, at_s=6, tenant=2),
    ]  # fmt: skip

    def test_serves_least_progress_first(self) -> None:
        """At 100 s, the first tenant has received 400 GPU-seconds and the second has received 0."""
        found = played(self.JOBS, quotas={1: 2, 2: 2}, gpus=(4, 0))
        assert (found[2].start_s, found[3].start_s) == (190, 100)

    def test_is_ignored_if_all_tenants_are_served(self) -> None:
        found = played(self.JOBS, quotas={1: 2, 2: 2}, gpus=(4, 0), tenant_fraction=1)
        assert (found[2].start_s, found[3].start_s) == (100, 110)

    def test_is_relative_to_quota(self) -> None:
        """At 100 s, tenant 1 (quota 3) has received 150 GPU-seconds, and tenant 2 (quota 1) 100."""
        jobs = [job(1, 1, 100, tenant=2), job(2, 3, 50), job(3, 4, 10, at_s=5),
                job(4, 4, 9, at_s=6, tenant=2)]  # fmt: skip
        found = played(jobs, quotas={1: 3, 2: 1}, gpus=(4, 0))
        assert (found[3].start_s, found[4].start_s) == (100, 110)

    def test_serves_tenants_without_quota_last(self) -> None:
        jobs = [job(1, 4, 10, tenant=3), job(2, 4, 10)]
        found = played(jobs, quotas={1: 4}, gpus=(4, 0))
        assert (found[1].start_s, found[2].start_s) == (10, 0)

    def test_ignores_tenants_with_only_oversized_jobs(self) -> None:
        """The tenant with the least progress has too large a gang, so another tenant is served."""
        jobs = (job(1, 1, 100), job(2, 99, 10, tenant=2), job(3, 3, 10, tenant=3))
        state = SimulationState(pool(quotas={1: 2, 2: 2}, gpus=(4, 0)), jobs, rules())
        state.advance(0)
        decision = decide_round(state.snapshot())
        notes = {grant.job: grant.key.note for grant in decision.grants}
        assert notes == {1: "matched", 3: "left_over"}

    def test_matched_jobs_option_limits_matching(self) -> None:
        """If one job is matched, the long job that came first starts.

        If two are matched, the short one starts.
        """
        jobs = [job(1, 4, 100), job(2, 4, 10)]
        assert played(jobs, gpus=(4, 0), matched_jobs=1)[1].start_s == 0
        assert played(jobs, gpus=(4, 0), matched_jobs=2)[2].start_s == 0

    def test_grants_note_matched_or_left_over(self) -> None:
        cluster = pool(quotas={1: 2, 2: 2}, gpus=(4, 0))
        jobs = (job(1, 1, 100), job(2, 1, 90, tenant=2))
        state = SimulationState(cluster, jobs, rules())
        state.advance(0)
        snapshot = state.snapshot()
        decision = decide_round(snapshot)
        assert [grant.key.note for grant in decision.grants] == ["matched", "left_over"]
        assert queue_order(snapshot, decision.service) == (1, 2)
