"""UniSched's Selector: golden cases, Proposition 1, comparison with the optimum, properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.deadlines.compact import compact_program
from evenshare_core.deadlines.model import RewardStep, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import (
    CellOption,
    Cells,
    free_cells,
    gpus_of,
    quadruples,
)
from evenshare_core.deadlines.picks import picks_now
from evenshare_core.deadlines.plans import JobLeases, SelectorPlan, faults, free_units
from evenshare_core.deadlines.rewards import (
    DatedReward,
    best_effort_micro,
    capped,
    soft_deadlines,
)
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.formulations.selector import select
from evenshare_core.formulations.selector_lp import relax
from evenshare_core.units import ONE_MILLI, REWARD_MICRO, SECOND_US
from evenshare_research.formulations.selector_literal import LiteralOptimum, literal_optimum
from tests.papers.proposition_1 import fits_cells

from .selector_cases import best_effort, nodes, options, small_case, strict
from .selector_solvers import reward_by_ortools, reward_by_pyomo

SMALL = range(24)
# The largest distances of 24 small plans from the optimum of the printed program, relative to it.
MOST_ABOVE, MOST_LOST = 0.002, 0.0303


@lru_cache
def oracle(seed: int) -> LiteralOptimum:
    return literal_optimum(small_case(seed))


@lru_cache
def compact_by_pyomo(seed: int) -> float:
    """Return the optimum of the compact program in whole numbers, in millionths of a point."""
    return reward_by_pyomo(compact_program(small_case(seed)), whole=True)


@lru_cache
def planned(seed: int) -> SelectorPlan:
    return select(small_case(seed))


class TestGoldenCases:
    def test_four_hostile_jobs_meet_deadlines_on_three_nodes(self) -> None:
        """Case 1: three jobs get a node each, and the fourth is split over the remaining GPUs."""
        jobs = [strict(number, 6, 4, 5) for number in range(4)]
        problem = SelectorProblem(jobs, nodes(3))
        plan = select(problem)
        assert faults(problem, plan) == []
        assert plan.reward_micro == 400 * REWARD_MICRO == literal_optimum(problem).reward_micro
        assert any(not row.option.one_node for row in plan.jobs.values())

    def test_one_job_misses_deadline_without_split_options(self) -> None:
        """Chronus would offer each job only one cell, rounded up to a power of two."""
        jobs = [
            replace(job, options=job.options[:1])
            for job in (strict(number, 6, 4, 5) for number in range(4))
        ]
        problem = SelectorProblem(jobs, nodes(3))
        assert select(problem).reward_micro == 300 * REWARD_MICRO

    def test_consolidates_best_effort_job_and_splits_another(self) -> None:
        """Golden case 2 of UniSched."""
        jobs = [*(strict(number, 6, 4, 5) for number in range(3)), best_effort(3, 6, 600)]
        problem = SelectorProblem(jobs, nodes(3))
        plan = select(problem)
        assert faults(problem, plan) == []
        assert len(plan.jobs) == 4
        assert plan.jobs[3].option.one_node
        assert plan.jobs[3].slots == (0,)
        placed = picks_now(problem, plan, {1: 8, 2: 8, 3: 8}, {})
        assert placed.unplaced == ()
        assert len(placed.gpus[3]) == 1

    def test_options_of_six_gpus(self) -> None:
        """Golden case 3 of UniSched."""
        rows = quadruples(6)
        assert {(0, 0, 0, 1), (0, 1, 1, 0), (6, 0, 0, 0)} <= set(rows)
        assert len(rows) == 6 + 1
        assert [len(quadruples(gpus)) for gpus in (8, 16)] == [10, 35]
        assert quadruples(17) == ((0, 0, 0, 3),)

    def test_proposition_1_on_two_nodes(self) -> None:
        """Golden case 5 of UniSched."""
        two_nodes = (0, 0, 0, 2)
        assert fits_cells((2, 1, 1, 1), two_nodes)
        assert not fits_cells((1, 0, 0, 2), two_nodes)


class TestRewards:
    def test_soft_steps_are_100_80_50_and_20(self) -> None:
        rows = soft_deadlines(1000, 2000)
        assert rows == (
            (2000, 100 * REWARD_MICRO), (2100, 80 * REWARD_MICRO),
            (2200, 50 * REWARD_MICRO), (2500, 20 * REWARD_MICRO),
        )  # fmt: skip

    def test_class_and_budget_cap_reward(self) -> None:
        asked = [DatedReward(1, 900 * REWARD_MICRO, 1)]
        assert capped(DeadlineClass.STRICT, asked)[0].reward_micro == 100 * REWARD_MICRO
        assert capped(DeadlineClass.STRICT, asked, 7)[0].reward_micro == 7
        with pytest.raises(ValueError, match="budget_micro"):
            capped(DeadlineClass.STRICT, asked, -1)

    def test_best_effort_is_phi_over_one_plus_remaining(self) -> None:
        assert best_effort_micro(ONE_MILLI, 300 * SECOND_US) == REWARD_MICRO // 2
        assert best_effort_micro(500, 300 * SECOND_US) == REWARD_MICRO // 4
        assert best_effort_micro(ONE_MILLI, 0) < REWARD_MICRO

    def test_profiler_ranks_between_deadlines_and_best_effort(self) -> None:
        profiler = SelectorJob(3, DeadlineClass.PROFILER, options(8)[:1])
        short = best_effort(2, 8, 1)
        assert list(select(SelectorProblem([short, profiler], nodes(1))).jobs) == [3]
        urgent = strict(1, 8, 1, 1)
        assert list(select(SelectorProblem([short, profiler, urgent], nodes(1))).jobs) == [1]

    def test_only_best_effort_starts_between_slo_cycles(self) -> None:
        problem = SelectorProblem([strict(1, 8, 1, 1), best_effort(2, 8, 1)], nodes(1), False)
        plan = select(problem)
        assert sorted(plan.jobs) == [1, 2]
        assert [row.job for row in plan.now(is_slo_cycle=False)] == [2]


class TestOptimum:
    @pytest.mark.parametrize("seed", SMALL)
    def test_plan_oracle_compact_and_bound_are_ordered(self, seed: int) -> None:
        problem, plan = small_case(seed), planned(seed)
        whole = compact_by_pyomo(seed)
        assert plan.reward_micro <= oracle(seed).reward_micro <= whole <= plan.bound_micro
        assert faults(problem, plan) == []
        assert plan.reward_micro >= (1 - MOST_LOST) * oracle(seed).reward_micro
        assert whole <= (1 + MOST_ABOVE) * oracle(seed).reward_micro

    def test_compact_optimum_usually_equals_literal(self) -> None:
        equal = sum(compact_by_pyomo(seed) == oracle(seed).reward_micro for seed in SMALL)
        assert equal >= 22

    @pytest.mark.parametrize("seed", SMALL)
    def test_three_solvers_agree(self, seed: int) -> None:
        program = compact_program(small_case(seed))
        whole = reward_by_ortools(program, whole=True)
        assert whole == compact_by_pyomo(seed)
        relaxed = relax(program)
        assert relaxed.is_complete
        value = float((program.rewards * relaxed.shares).sum())
        for solve in (reward_by_ortools, reward_by_pyomo):
            assert solve(program, whole=False) == pytest.approx(value, rel=1e-6)
        assert program.bound_micro(relaxed.prices) == pytest.approx(value, rel=1e-6)

    def test_accounts_for_running_leases(self) -> None:
        """A node is free from slot 2 on, so only the second SLO lease can use it."""
        free: tuple[Cells, ...] = ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 1))
        for deadline, reward in ((1, 0), (2, 100)):
            problem = SelectorProblem([strict(1, 8, 1, deadline)], free)
            assert select(problem).reward_micro == reward * REWARD_MICRO
            assert literal_optimum(problem).reward_micro == reward * REWARD_MICRO


@st.composite
def problems(draw: st.DrawFn) -> SelectorProblem:
    """Draw jobs of all kinds, and free cells that change over time, in or outside an SLO cycle."""
    jobs = []
    for number in range(draw(st.integers(0, 12))):
        gpus = draw(st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 24)))
        rows = options(gpus, draw(st.sampled_from((500, 800, 1000))))
        kind = draw(st.sampled_from(DeadlineClass))
        steps: tuple[RewardStep, ...] = ()
        if kind.has_deadline:
            steps = tuple(
                RewardStep(points * REWARD_MICRO, draw(st.integers(0, 9)), draw(st.integers(1, 6)))
                for points in (100, 50)[: 1 if kind is DeadlineClass.STRICT else 2]
            )
        jobs.append(SelectorJob(number, kind, rows, steps, draw(st.integers(0, 10**10))))
    free = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))
    horizon = draw(st.sampled_from((3, 1008)))
    cells = draw(st.lists(free, min_size=1, max_size=5))
    return SelectorProblem(jobs, cells, draw(st.booleans()), horizon)


class TestPlanInvariants:
    @given(problems())
    def test_is_feasible_with_gap_from_0_to_1(self, problem: SelectorProblem) -> None:
        plan = select(problem)
        assert faults(problem, plan) == []
        assert 0 <= plan.gap <= 1

    @given(problems())
    def test_is_deterministic(self, problem: SelectorProblem) -> None:
        assert select(problem) == select(problem)

    @given(problems(), st.integers(0, 20))
    def test_is_feasible_with_any_work_limit(self, problem: SelectorProblem, steps: int) -> None:
        plan = select(problem, select(problem), iterations=steps, effort=steps)
        assert faults(problem, plan) == []

    @given(problems(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10**9)), max_size=9))
    def test_stays_below_bound_of_any_prices(
        self, problem: SelectorProblem, prices: list[tuple[int, int]]
    ) -> None:
        program = compact_program(problem)
        known = [(row, price) for row, price in prices if row < len(program.rows)]
        assert select(problem).reward_micro <= program.bound_micro(known)

    @pytest.mark.parametrize("iterations", [0, 1000])
    def test_leaves_no_usable_gpu_idle(self, iterations: int) -> None:
        problem = SelectorProblem([strict(1, 8, 2, 6)], nodes(1))
        assert select(problem, iterations=iterations).jobs[1].slots == (0, 1)

    def test_faults_reports_invalid_plan(self) -> None:
        problem = SelectorProblem([strict(1, 8, 2, 3), strict(2, 8, 1, 3)], nodes(1))
        plan = select(problem)
        row = plan.jobs[1]
        for wrong, text in _broken(plan, replace(row, slots=row.slots[:1])):
            assert text in faults(problem, wrong)

    def test_counts_free_cells_in_both_halves(self) -> None:
        problem = SelectorProblem([strict(1, 4, 1, 1), best_effort(2, 4, 9)], nodes(1))
        now, leases = free_units(problem, select(problem))
        assert now.tolist() == [0, 0, 0, 1]  # no job needs level 3, and the other levels are full
        assert leases.tolist() == [[4, 2, 1, 1]]


def _broken(plan: SelectorPlan, short: JobLeases) -> Iterator[tuple[SelectorPlan, str]]:
    row = plan.jobs[1]
    for changed, text in (
        (short, "job 1 has too few leases"),
        (replace(row, slots=(0, 0)), "job 1 has two leases in one slot"),
        (replace(row, slots=(1, 3)), "job 1 runs before now or after its deadline"),
        (replace(row, slots=(0, 1, 2)), "a slot has more planned cells than free cells"),
        (replace(row, reward_micro=1), "the reward is not the sum of the jobs' rewards"),
    ):
        yield replace(plan, jobs={**plan.jobs, 1: changed}), text
    yield replace(plan, bound_micro=1), "the bound is below the reward"


class TestPreviousPlan:
    def test_is_kept_without_solver_iterations(self) -> None:
        """Each job keeps its slots and its option from the previous plan."""
        jobs = [strict(number, 6, 4, 5) for number in range(4)]
        problem = SelectorProblem(jobs, nodes(3))
        last = select(problem)
        plan = select(problem, last, iterations=0, effort=0)
        assert not plan.is_complete
        assert plan.reward_micro == last.reward_micro
        assert {row.job: row.option for row in plan.jobs.values()} == {
            row.job: row.option for row in last.jobs.values()
        }
        assert plan.bound_micro >= plan.reward_micro

    def test_of_other_cycle_does_no_harm(self) -> None:
        last = select(SelectorProblem([strict(9, 8, 2, 5)], nodes(1)))
        problem = SelectorProblem([strict(1, 6, 4, 5)], nodes(2))
        assert select(problem, last, iterations=0).reward_micro == 100 * REWARD_MICRO

    def test_rejects_negative_work_limit(self) -> None:
        with pytest.raises(ValueError, match="iterations"):
            select(SelectorProblem([], nodes(1)), iterations=-1)


class TestPaperErrata:
    def test_equations_7_and_12_are_lower_bounds(self) -> None:
        """With (7) as printed (<=) and (12), no option with phi below 1 could be planned."""
        spread = tuple(row for row in options(6) if not row.one_node)
        job = replace(strict(1, 6, 4, 5), options=spread)
        assert select(SelectorProblem([job], nodes(1))).reward_micro == 100 * REWARD_MICRO

    def test_equations_11_and_14_apply_per_lease(self) -> None:
        """With (11) and (14) as printed, two jobs could not follow each other on one node."""
        jobs = [strict(1, 8, 1, 2), strict(2, 8, 1, 2)]
        problem = SelectorProblem(jobs, nodes(1))
        assert select(problem).reward_micro == 200 * REWARD_MICRO

    def test_equation_14_splits_job_with_cells_on_two_nodes(self) -> None:
        """By (14), (0, 1, 1, 0) fits free cells of 4 and 2 on two nodes, but no single node."""
        free = free_cells([4, 2])
        assert fits_cells((0, 1, 1, 0), free)
        job = best_effort(1, 6, 60, 700)
        plan = select(SelectorProblem([job], (free,)))
        assert not plan.jobs[1].option.one_node
        assert plan.jobs[1].reward_micro == best_effort_micro(700, 60 * SECOND_US)


class TestValidation:
    @pytest.mark.parametrize(
        ("kind", "reward", "steps"),
        [("strict_slo", 101, 1), ("strict_slo", -1, 1), ("best_effort", 1, 1), ("soft_slo", 1, 0)],
    )
    def test_rejects_invalid_jobs(self, kind: str, reward: int, steps: int) -> None:
        rows = (RewardStep(reward * REWARD_MICRO, 1, 1),) * steps
        with pytest.raises(ValueError, match=r"job 1: (steps|reward_micro)"):
            SelectorJob(1, DeadlineClass(kind), options(1), rows)

    def test_rejects_invalid_problems_and_options(self) -> None:
        job = strict(1, 1, 1, 1)
        with pytest.raises(ValueError, match="jobs: give each job once"):
            SelectorProblem([job, job], nodes(1))
        with pytest.raises(ValueError, match="free: give"):
            SelectorProblem([job], ())
        with pytest.raises(ValueError, match="horizon"):
            SelectorProblem([job], nodes(1), horizon=0)
        with pytest.raises(ValueError, match="fewer GPUs"):
            CellOption((1, 0, 0, 0), 2, one_node=True, phi_milli=1000)
        with pytest.raises(ValueError, match="gpus"):
            quadruples(0)
        assert gpus_of((1, 1, 1, 1)) == 15
