"""Test Chronus: leases planned by a program on whole cells, options, and GPUs for other jobs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.units import SECOND_US
from tests.papers.deadline_pools import NOW_US, asked, order, started
from tests.unit.core.snapshots import lease


class TestChronus:
    """Rounds with leases of 600 s, on nodes of 8 GPUs."""

    def asked(self, *rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
        return asked("chronus", *rows, **{"nodes": {1: 8}, "lease_us": 600 * SECOND_US, **fields})

    def points(self, one: Snapshot) -> float | None:
        solve = decide_round(one).solve
        return None if solve is None else solve.objective

    GOLDEN = ((6, 4800, (6000,)),) * 4
    SPREADS = tuple(JobEstimate(n, EstimateSource.HISTORY, 0, 0, 800) for n in range(1, 5))

    @pytest.mark.parametrize(("is_on", "points"), [(False, 300), (True, 400)])
    def test_misses_one_deadline_that_unisched_meets(self, *, is_on: bool, points: int) -> None:
        """UniSched II-C: three nodes have room for 30 leases, but four jobs need 8 leases each."""
        one = self.asked(
            *self.GOLDEN, nodes={1: 8, 2: 8, 3: 8}, estimates=self.SPREADS,
            options={"selector": is_on},
        )  # fmt: skip
        decision = decide_round(one)
        assert sorted(len(row.placement) for row in decision.grants) == [1, 1, 1, 3][: 3 + is_on]
        assert self.points(one) == points

    def test_plans_by_reward_then_fills_by_remaining_time(self) -> None:
        rows = ((4, 600, (700, 1900)), (8, 600, (650,)), (4, 500, ()), (4, 400, ()))
        one = self.asked(*rows)
        assert started(decide_round(one)) == [2]
        assert self.points(one) == 180  # the soft job runs one lease later, for 80 points
        assert order(one) == [2, 4, 3, 1]

    def test_preempts_best_effort_at_lease_end(self) -> None:
        rows = ((8, 5000, ()), (8, 600, (650,)), (8, 50, ()))
        one = self.asked(*rows, leases=[lease(7, 1, (1, 8))])
        decision = decide_round(one)
        assert (started(decision), [row.lease for row in decision.ends]) == ([2], [7])
        goes_on = lease(7, 1, (1, 8), expires_us=NOW_US + 1)
        assert started(decide_round(self.asked(*rows, leases=[goes_on]))) == []

    def test_suspends_job_with_slack_for_urgent_one(self) -> None:
        rows = ((8, 2800, (9000,)), (8, 600, (700,)))
        assert started(decide_round(self.asked(*rows, leases=[lease(7, 1, (1, 8))]))) == [2]

    def test_rounds_gang_up_to_next_cell(self) -> None:
        """Six GPUs are planned as eight, but two of them are still given to other jobs."""
        rows = ((6, 600, (700,)), (2, 600, (700,)), (2, 600, ()))
        one = self.asked(*rows)
        assert self.points(one) == 100
        assert len(decide_round(one).grants) == 2

    def test_renews_gang_on_same_gpus(self) -> None:
        """Another job uses two GPUs of its node, so that node has no free cell of 8."""
        leases = [lease(7, 1, (1, 6)), lease(8, 2, (1, 2), expires_us=2 * NOW_US)]
        rows = ((6, 3000, (3600,)), (2, 9000, ()))
        decision = decide_round(self.asked(*rows, leases=leases))
        assert [(row.job, row.key.note) for row in decision.renewals] == [(1, "planned_lease")]

    def test_does_not_move_continuing_leases(self) -> None:
        """The first job keeps its GPUs until its lease ends; the second job gets the next lease."""
        goes_on = lease(7, 1, (1, 8), expires_us=NOW_US + 1)
        rows = ((8, 5400, (50_000,)), (8, 600, (1300,)))
        one = self.asked(*rows, leases=[goes_on])
        assert started(decide_round(one)) == []
        assert self.points(one) == 200
        tight = self.asked((8, 5400, (5000,)), rows[1], leases=[goes_on])
        assert self.points(tight) == 100

    def test_plans_running_job_from_lease_end(self) -> None:
        """The job ran for 1000 s of 2199 s, and gets the next lease before its deadline."""
        goes_on = lease(7, 1, (1, 8), expires_us=NOW_US + 600 * SECOND_US)
        one = self.asked((8, 2199, (1200,)), (8, 600, (3000,)), leases=[goes_on])
        assert self.points(one) == 200

    def test_moves_job_to_planned_node_at_lease_end(self) -> None:
        """On two nodes the job is half as fast, and would be late."""
        one = self.asked(
            (6, 1600, (700,)), nodes={1: 3, 2: 3, 3: 8}, leases=[lease(7, 1, (1, 3), (2, 3))],
            options={"selector": True},
            estimates=(JobEstimate(1, EstimateSource.HISTORY, 0, 0, 500),),
        )  # fmt: skip
        assert [row.placement for row in decide_round(one).grants] == [((3, 6),)]

    @pytest.mark.parametrize(
        ("work_s", "end_s", "points"), [(300, 400, 100), (900, 900, 100), (900, 899, None)]
    )
    def test_rounds_work_up_to_whole_leases(
        self, work_s: int, end_s: int, points: int | None
    ) -> None:
        """The work is not a whole number of leases of 600 s, so the last lease may end late."""
        assert self.points(self.asked((8, work_s, (end_s,)))) == points

    @pytest.mark.parametrize(("is_on", "points"), [(False, 200), (True, 100)])
    def test_adds_expected_interruptions(self, *, is_on: bool, points: int) -> None:
        """Two leases of three have 1/3 of an interruption on average, so the job needs three."""
        rows = ((8, 1200, (1900,)), (8, 600, (1900,)))
        known = (JobEstimate(1, EstimateSource.HISTORY, 0, 600 * SECOND_US),)
        one = self.asked(*rows, estimates=known, options={"estimator": is_on})
        assert self.points(one) == points

    def test_reserves_profiling_gpus_if_configured(self) -> None:
        rows = ((4, 600, (700,)), (4, 600, ()))
        one = self.asked(*rows, nodes={1: 4, 2: 4})
        assert started(decide_round(one)) == [1, 2]
        kept = self.asked(*rows, nodes={1: 4, 2: 4}, options={"profiling_gpus": 1})
        assert [row.placement for row in decide_round(kept).grants] == [((1, 4),)]

    def test_orders_unmeetable_deadlines_by_remaining_time(self) -> None:
        rows = ((8, 600, (500,)), (8, 400, ()))
        assert order(self.asked(*rows)) == [2, 1]

    def test_uses_configured_runtime_without_estimate(self) -> None:
        rows = ((8, None, (700,)),)
        assert self.points(self.asked(*rows)) is None
        assert self.points(self.asked(*rows, options={"unknown_s": 600})) == 100

    def test_does_not_plan_gang_across_small_nodes(self) -> None:
        rows = ((8, 600, (700,)),)
        one = self.asked(*rows, nodes={1: 4, 2: 4})
        assert self.points(one) == 0
        assert started(decide_round(one)) == [1]  # it starts after all planned jobs

    def test_plans_only_on_claimed_gpu_type(self) -> None:
        """On the other type, the job can only use GPUs that plans leave."""
        one = self.asked((8, 600, (700,)), (8, 600, (700,)))
        both = replace(one, nodes=(*one.nodes, Node(2, "k80", 8)))
        assert self.points(both) == 100
        given = [(row.gpu_type, row.key.note) for row in decide_round(both).grants]
        assert given == [("v100", "planned_lease"), ("k80", "left_over")]

    def test_does_not_plan_beyond_horizon(self) -> None:
        """The second job's four leases can all run after the first lease."""
        rows = ((8, 600, (700,)), (8, 2400, (3700,)))
        for leases, points in ((1, 200), (7, 200)):
            one = self.asked(*rows, options={"horizon_leases": leases})
            assert (started(decide_round(one)), self.points(one)) == ([1], points)
