"""Test the programs in OR-Tools against HiGHS, their limits and their errors."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from evenshare_core.formulations.lp import ConstraintRows, LinearProgram
from evenshare_core.formulations.ortools_programs import GlopProgram, choose_whole
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.formulations.selector_whole import solve_whole

ENOUGH = 10_000
SEEDS = range(12)


def drawn(seed: int) -> tuple[Array, ConstraintRows]:
    """Draw whole rewards, and rows of whole numbers with bounds that some choices exceed."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(5, 25))
    rows = ConstraintRows()
    for _ in range(int(rng.integers(2, 9))):
        values = rng.integers(0, 9, columns).astype(float)
        rows.add(np.arange(columns), values, -np.inf, float(values.sum() // 3))
    return rng.integers(1, 1000, columns).astype(float), rows


class TestGlop:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_finds_optimum_and_duals_of_highs(self, seed: int) -> None:
        rewards, rows = drawn(seed)
        upper = np.ones(len(rewards))
        program = GlopProgram(rewards, upper, ConstraintRows())
        program.limit(ENOUGH)
        assert program.solve()[0].tolist() == upper.tolist()
        program.add(rows)
        values, duals = program.solve()
        theirs, their_duals = LinearProgram(rewards, upper, rows).solve()
        assert rewards @ values == pytest.approx(rewards @ theirs, rel=1e-9)
        assert np.array(rows.upper) @ duals == pytest.approx(
            np.array(rows.upper) @ their_duals, rel=1e-6
        )

    def test_step_limit_is_an_error(self) -> None:
        rng = Random(1)  # noqa: S311 - a test's seed
        rows = ConstraintRows()
        for _ in range(40):
            values = np.array([float(rng.randrange(1, 9)) for _ in range(60)])
            rows.add(np.arange(60), values, -np.inf, 20.0)
        program = GlopProgram(np.arange(1.0, 61.0), np.ones(60), rows)
        program.limit(1)
        with pytest.raises(SolverError, match="GLOP ended"):
            program.solve()

    def test_refused_value_is_an_error(self) -> None:
        program = GlopProgram(np.array([np.nan]), np.ones(1), ConstraintRows())
        program.limit(ENOUGH)
        with pytest.raises(SolverError, match=r"GLOP ended .*objective_coefficient"):
            program.solve()


class TestCpSat:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_finds_optimum_of_highs(self, seed: int) -> None:
        rewards, rows = drawn(seed)
        taken, bound, is_optimal = choose_whole(rewards, rows, work=2.0)
        theirs, _, _ = solve_whole(rewards, rows)
        assert taken is not None
        assert theirs is not None
        assert is_optimal
        assert bound == rewards[taken].sum() == rewards[theirs].sum()
        for indices, values, upper in zip(rows.indices, rows.values, rows.upper, strict=True):
            assert values[taken[indices]].sum() <= upper

    def test_without_work_has_only_a_bound(self) -> None:
        rewards, rows = drawn(0)
        assert choose_whole(rewards, rows, work=0.0) == (None, rewards.sum(), False)

    def test_impossible_rows_are_an_error(self) -> None:
        rows = ConstraintRows()
        rows.add(np.arange(2), np.ones(2), 3.0, np.inf)
        with pytest.raises(SolverError, match="CP-SAT ended"):
            choose_whole(np.ones(2), rows, work=1.0)
