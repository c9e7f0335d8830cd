"""3Sigma: distributions of run times, the program of starts, and the rules of the policy."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_research.formulations.start_slots import Slots, StartJob, plan_starts
from evenshare_research.policies.runtimes import remaining_times, run_times
from tests.papers.deadline_pools import NOW_US, asked, estimates, order, started
from tests.unit.core.snapshots import lease


class TestRuntimeDistribution:
    def test_has_eight_equally_likely_runtimes(self) -> None:
        lengths = run_times(1000, 200)
        assert lengths == (693, 822, 902, 968, 1031, 1097, 1177, 1306)
        assert run_times(1000, 0) == (1000,) * 8

    def test_runtimes_have_minimum(self) -> None:
        assert run_times(1000, 2000)[:3] == (50, 50, 50)

    def test_drops_runtimes_already_exceeded(self) -> None:
        assert remaining_times((10, 20, 30), 0) == (10, 20, 30)
        assert remaining_times((10, 20, 30), 10) == (10, 20)

    @pytest.mark.parametrize(("ran", "left"), [(30, 1), (31, 1), (50, 20), (90, 60)])
    def test_doubles_runtime_after_exceeding_all(self, ran: int, left: int) -> None:
        assert remaining_times((10, 20, 30), ran) == (left,)


SLOTS = 4


def drawn_starts(seed: int) -> tuple[list[StartJob], dict[str, Slots]]:
    """Draw some jobs for two GPU types with few free GPUs."""
    rng = Random(seed)  # noqa: S311 - a test's seed
    free = {
        name: np.array([rng.randrange(8, 40) for _ in range(SLOTS)], dtype=np.int64)
        for name in ("k80", "v100")
    }
    jobs = []
    for number in range(1, rng.randrange(2, 6)):
        uses = sorted((rng.randrange(25) for _ in range(SLOTS)), reverse=True)
        earns = [rng.choice((0, rng.randrange(1, 10**8))) for _ in range(SLOTS)]
        types = rng.choice((("k80",), ("v100",), ("k80", "v100")))
        jobs.append(StartJob(number, types, np.array(uses), np.array(earns)))
    return jobs, free


def best_utility(jobs: list[StartJob], free: dict[str, Slots]) -> int:
    """Return the highest utility of any plan, by trying all plans."""
    if not jobs:
        return 0
    first, rest = jobs[0], jobs[1:]
    best = best_utility(rest, free)
    for name in first.gpu_types:
        for slot in range(SLOTS):
            left = {key: row.copy() for key, row in free.items()}
            left[name][slot:] -= first.uses[: SLOTS - slot]
            if first.utilities[slot] and (left[name] >= 0).all():
                best = max(best, int(first.utilities[slot]) + best_utility(rest, left))
    return best


class TestStartPlan:
    def test_matches_exhaustive_search(self) -> None:
        for seed in range(60):
            jobs, free = drawn_starts(seed)
            plan = plan_starts(jobs, free, exact_jobs=99)
            assert (plan.utility, plan.limit) == (best_utility(jobs, free), "")

    def test_limited_plan_reports_bound(self) -> None:
        below = 0
        for seed in range(60):
            jobs, free = drawn_starts(seed)
            plan = plan_starts(jobs, free, exact_jobs=0)
            best = best_utility(jobs, free)
            assert plan.utility <= best <= plan.bound
            assert bool(plan.limit) == (plan.utility < plan.bound)
            below += plan.utility < best
        assert below, "the program is there for something"

    def test_stays_within_free_gpus(self) -> None:
        for seed in range(60):
            jobs, free = drawn_starts(seed)
            plan = plan_starts(jobs, free, exact_jobs=99)
            by_id = {job.id: job for job in jobs}
            for number, (name, slot) in plan.starts.items():
                free[name][slot:] -= by_id[number].uses[: SLOTS - slot]
            assert all((row >= 0).all() for row in free.values())


class TestThreeSigma:
    """Slots last a minute, so the second of two jobs would start a minute after the first."""

    TWO = ((4, 100, (120,)), (4, 100, (110,)))

    def asked(self, *rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
        options = {"slot_s": 60, "window_slots": 5, "error": 0.0, **fields.pop("options", {})}
        return asked("three_sigma", *rows, options=options, **fields)

    @pytest.mark.parametrize(
        ("errors", "exact_jobs", "first"),
        [
            # one job gets 100 points for certain, the other only for half of its possible lengths
            ((0, 1000), 16, 1),
            ((1000, 0), 16, 2),
            # without exact search, the job with the higher utility per GPU-time is also tried first
            ((0, 1000), 0, 1),
        ],
    )
    def test_starts_job_with_highest_expected_utility(
        self, errors: tuple[int, int], exact_jobs: int, first: int
    ) -> None:
        one = self.asked(
            *self.TWO, estimates=estimates(*errors), options={"exact_jobs": exact_jobs}
        )
        assert started(decide_round(one)) == [first]

    def test_limited_plan_shows_distance_from_best(self) -> None:
        one = self.asked(*self.TWO, estimates=estimates(0, 1000), options={"exact_jobs": 0})
        solve = decide_round(one).solve
        assert solve is not None
        assert solve.status == "feasible"
        # The plan's utility is nearly 50 points below the highest possible utility of 150.
        assert solve.fallback == "at most 33.33% below the best plan: more than 0 jobs"
        exact = decide_round(self.asked(*self.TWO, estimates=estimates(0, 1000))).solve
        assert exact is not None
        assert (exact.status, exact.objective, exact.fallback) == ("optimal", 100.005, "")

    def test_uses_configured_error_if_estimate_has_none(self) -> None:
        """Only one job can meet its deadline.

        If both durations are certain, the job with the nearer deadline starts; else the job with a
        certain duration starts.
        """
        rows = ((4, 100, (170,)), (4, 100, (110,)))
        assert started(decide_round(self.asked(*rows))) == [2]
        wide = self.asked(*rows, options={"error": 2.0}, estimates=estimates(0))
        assert started(decide_round(wide)) == [1]

    def test_deadline_job_preempts_best_effort_at_lease_end(self) -> None:
        rows = ((4, 500, ()), (4, 100, (110,)))
        one = self.asked(*rows, leases=[lease(7, 1, (1, 4))])
        decision = decide_round(one)
        assert (started(decision), [row.lease for row in decision.ends]) == ([2], [7])
        holds = lease(7, 1, (1, 4), expires_us=NOW_US + 1)
        assert started(decide_round(self.asked(*rows, leases=[holds]))) == []

    def test_never_preempts_deadline_jobs(self) -> None:
        rows = ((4, 5000, (86_400,)), (4, 100, (110,)))
        decision = decide_round(self.asked(*rows, leases=[lease(7, 1, (1, 4))]))
        assert ([row.job for row in decision.renewals], started(decision)) == ([1], [])

    def test_best_effort_uses_gpus_planned_for_later(self) -> None:
        """Two GPUs are in use for two more slots, so the gang is planned to start afterwards."""
        runs = lease(7, 1, (1, 2), expires_us=2 * NOW_US)
        rows = ((2, 1110, (2000,)), (4, 100, (250,)), (2, 50, ()))
        decision = decide_round(self.asked(*rows, leases=[runs]))
        assert started(decision) == [3]
        assert decision.solve is not None
        assert decision.solve.objective == 100.003  # the job starts in the third of five slots

    def test_orders_best_effort_by_running_then_remaining_time(self) -> None:
        rows = ((2, 500, ()), (2, 90, ()), (2, 80, ()))
        assert order(self.asked(*rows, leases=[lease(7, 1, (1, 2))])) == [1, 3, 2]

    @pytest.mark.parametrize(("ends_s", "first"), [((90,), 2), ((100,), 1)])
    def test_treats_unmeetable_deadline_as_best_effort(
        self, ends_s: tuple[int, ...], first: int
    ) -> None:
        assert started(decide_round(self.asked((4, 100, ends_s), (4, 50, ())))) == [first]

    def test_uses_configured_runtime_without_estimate(self) -> None:
        rows = ((4, None, (100,)), (4, 50, ()))
        assert started(decide_round(self.asked(*rows))) == [2]
        assert started(decide_round(self.asked(*rows, options={"unknown_s": 99}))) == [1]

    def test_ranks_soft_deadlines_by_reward(self) -> None:
        """Two minutes late, the job with a soft deadline still gets 80 points, the other job 0."""
        rows = ((4, 100, (110, 230)), (4, 100, (115,)))
        assert started(decide_round(self.asked(*rows))) == [2]

    def test_plans_start_in_slot_freed_by_ending_job(self) -> None:
        solve = decide_round(self.asked((4, 60, (60,)), (4, 60, (120,)))).solve
        assert solve is not None
        assert solve.objective == 200.009

    def test_plan_counts_gpus_without_nodes(self) -> None:
        """Two nodes have two free GPUs each.

        The gang is planned for now, but does not fit on one node.
        """
        fields: dict[str, Any] = {
            "nodes": {1: 4, 2: 4},
            "leases": [
                lease(7, 2, (1, 2), expires_us=2 * NOW_US),
                lease(8, 3, (2, 2), expires_us=2 * NOW_US),
            ],
        }
        rows = ((4, 100, (500,)), (2, 9000, ()), (2, 9000, ()), (2, 9000, ()))
        decision = decide_round(self.asked(*rows, **fields))
        assert started(decision) == [4]
        assert decision.solve is not None
        assert decision.solve.objective == 100.005

    @pytest.mark.parametrize(("ends_s", "note"), [((150,), "planned_start"), ((), "best_effort")])
    def test_grant_notes_reason(self, ends_s: tuple[int, ...], note: str) -> None:
        decision = decide_round(self.asked((4, 100, ends_s)))
        assert decision.grants[0].key.note == note
