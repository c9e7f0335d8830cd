"""Test the model of few columns for (9) and `gavel`: it has the optimum of the whole program."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.formulations import oef_columns
from evenshare_core.formulations.oef_columns import FewColumns, Optimum
from evenshare_core.formulations.oef_fast import Fast
from evenshare_core.formulations.oef_highs import Highs
from evenshare_core.formulations.oef_prices import CLOSEST, near_columns
from evenshare_core.formulations.problems import Array, ShareProblem, ShareRule, SolverError
from evenshare_core.formulations.programs import Levels, SolverResult
from evenshare_core.formulations.shares import canonical, solve_shares

RULES = (ShareRule.NONCOOPERATIVE, ShareRule.GAVEL)
SPEEDS = (0.0, 1.0, 1.0 + 1e-9, 1.5, 2.0, 4.0)
HUGE = (1e-3, 1.0, 3.0, 1e3)
DIGEST = """
import hashlib, sys
import numpy as np
from evenshare_core.formulations.shares import ShareProblem, solve_shares
for tenants in map(int, sys.argv[1:]):
    speedups = 1 + np.cumsum(np.random.default_rng(1).uniform(0, 1, (tenants, 10)), axis=1)
    solution = solve_shares(ShareProblem(speedups, np.full(10, tenants)), "noncooperative")
    assert solution.backend == "ortools"
    digest = hashlib.sha256(solution.shares.tobytes()).hexdigest()
print(digest)
"""


@pytest.fixture(autouse=True)
def _without_small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose columns by prices in small programs too."""
    monkeypatch.setattr(oef_columns, "SMALL", 0)
    monkeypatch.setattr("evenshare_core.formulations.oef_prices.CLOSEST", 1)


@st.composite
def problems(draw: st.DrawFn, *, capped: bool) -> ShareProblem:
    """Draw a problem with ties: equal tenants, zeros, one type, or speeds 1e6 apart."""
    tenants, types = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    speed = st.sampled_from(draw(st.sampled_from([SPEEDS, HUGE]))) | st.floats(0.5, 9)
    rows = st.lists(speed, min_size=types, max_size=types)
    different = draw(st.lists(rows, min_size=1, max_size=tenants))
    caps = st.sampled_from([0.5, 1.0, 3.5, np.inf])
    return ShareProblem(
        np.array([different[draw(st.integers(0, len(different) - 1))] for _ in range(tenants)]),
        np.array(draw(st.lists(st.integers(0, 8), min_size=types, max_size=types)), float),
        np.array(draw(st.lists(st.integers(1, 4), min_size=tenants, max_size=tenants)), float),
        np.array([draw(caps) for _ in range(tenants)]) if capped else None,
    )


def first_program(problem: ShareProblem) -> Levels | None:
    """Return the program of (9) before any tenant is held, or None if there is no tenant."""
    classes = canonical(problem)
    count = len(classes.weights)
    held, held_at = np.zeros(count, dtype=bool), np.zeros(count)
    if not count:
        return None
    data = (classes.speedups, classes.capacity, classes.weights, classes.caps)
    return Levels(*data, held, held_at)


def level_of(program: Levels, answer: SolverResult) -> float:
    reached = (program.speedups * answer.shares).sum(axis=1)
    return float((reached / program.rates)[~program.held].min())


def random_problem(seed: int, tenants: int, types: int, capped: float = 0.0) -> ShareProblem:
    chance = np.random.default_rng(seed)
    faster = 1 + np.cumsum(chance.uniform(0, 1, (tenants, types - 1)), axis=1)
    capacity = chance.integers(1, 10, types) * tenants / 4
    weights = np.exp(chance.normal(0, 0.5, tenants))
    some = chance.random(tenants) < capped
    caps = np.where(some, chance.integers(1, 12, tenants), np.inf)
    return ShareProblem(np.hstack([np.ones((tenants, 1)), faster]), capacity, weights, caps)


class TestOptimum:
    @settings(deadline=None, max_examples=60)
    @given(data=st.data(), capped=st.booleans())
    def test_has_prices_that_prove_it(self, data: st.DataObject, capped: bool) -> None:
        """No reduced cost is negative, and the price of all bounds equals the level.

        A cap may be exceeded by 1e-9, which the level then exceeds too.
        """
        problem = data.draw(problems(capped=capped))
        program = first_program(problem)
        if program is None:
            return
        answer = FewColumns(program).solve("ortools")
        assert (answer.shares >= 0).all()
        assert (answer.shares.sum(axis=0) <= program.capacity * (1 + 1e-15)).all()
        assert (answer.shares.sum(axis=1) <= program.caps * (1 + 1e-8)).all()
        costs = answer.prices + answer.cap_prices[:, None]
        worth = answer.level_prices[:, None] * program.speedups
        assert (costs >= worth * (1 - 2e-12)).all()
        finite = np.where(np.isfinite(program.caps), program.caps, 0.0)
        bound = answer.prices @ program.capacity + answer.cap_prices @ finite
        bound /= answer.level_prices @ program.rates
        exact = 1e-8 if capped else 1e-12
        assert level_of(program, answer) == pytest.approx(bound, rel=exact, abs=0.0)

    @settings(deadline=None, max_examples=60)
    @given(problem=problems(capped=True), rule=st.sampled_from(RULES))
    def test_equals_direct_highs(self, problem: ShareProblem, rule: ShareRule) -> None:
        """Under caps, tenants are held one after the other."""
        found, direct = (solve_shares(problem, rule, name) for name in ("fast", "highs"))
        assert found.fallback == ""
        if direct.fallback:
            return  # Rounding made HiGHS's program of held tenants infeasible.
        np.testing.assert_allclose(found.throughputs, direct.throughputs, rtol=1e-6, atol=1e-7)

    @settings(deadline=None, max_examples=60)
    @given(problem=problems(capped=True), rule=st.sampled_from(RULES), data=st.data())
    def test_does_not_depend_on_order_of_tenants(
        self, problem: ShareProblem, rule: ShareRule, data: st.DataObject
    ) -> None:
        order = np.array(data.draw(st.permutations(range(len(problem.pi)))))
        turned = ShareProblem(
            *(problem.speedups[order], problem.capacity, problem.pi[order], problem.cap[order])
        )
        found, other = (solve_shares(one, rule) for one in (problem, turned))
        capped = np.isfinite(canonical(problem).caps).any()
        if capped:  # Otherwise the first of equal tenants get the slowest types.
            assert other.shares.tobytes() == found.shares[order].tobytes()
        np.testing.assert_allclose(other.throughputs, found.throughputs[order], rtol=1e-12)

    @pytest.mark.parametrize("spread", [1e-9, 1e-3, 1.0, 9.0])
    def test_is_exact_for_many_tenants(self, spread: float) -> None:
        """If speeds hardly differ, prices are guessed more precisely."""
        chance = np.random.default_rng(3)
        speedups = 10 ** (spread * chance.uniform(0, 1, (200, 6)))
        program = first_program(ShareProblem(speedups, chance.integers(1, 90, 6).astype(float)))
        assert program is not None
        answer = FewColumns(program).solve("ortools")
        bound = answer.prices @ program.capacity
        bound /= (answer.prices / program.speedups).min(axis=1) @ program.rates
        assert level_of(program, answer) == pytest.approx(bound, rel=1e-13, abs=0.0)
        assert (answer.shares > 0).sum() <= 200 + 6 - 1

    def test_is_found_where_rounding_stops_direct_highs(self) -> None:
        """The work of the held tenants fits the GPUs with a margin of 1e-14."""
        problem = random_problem(2, 100, 6, capped=1.0)
        found = solve_shares(problem, ShareRule.NONCOOPERATIVE)
        assert (found.backend, found.status, found.fallback) == ("ortools", "optimal", "")
        assert found.total > 1.1 * solve_shares(problem, ShareRule.MAX_MIN).total


class TestColumns:
    def test_are_few(self) -> None:
        program = first_program(random_problem(2, 1000, 10))
        assert program is not None
        columns = FewColumns(program)
        first = columns.chosen.copy()
        assert first.any(axis=1).all()
        assert first.sum() < 1200
        columns.solve("ortools")
        assert (columns.chosen == first).all(), "the prices were guessed well"

    def test_are_few_if_speeds_hardly_differ(self) -> None:
        chance = np.random.default_rng(1)
        speedups = 1 + 1e-3 * chance.random((300, 10))
        program = first_program(ShareProblem(speedups, np.full(10, 30.0)))
        assert program is not None
        assert FewColumns(program).chosen.sum() < 1.5 * 300

    def test_are_added_until_no_reduced_cost_is_negative(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The optimum does not depend on the guess."""
        program = first_program(random_problem(4, 30, 4))
        assert program is not None
        expected = level_of(program, FewColumns(program).solve("ortools"))

        def slowest(asked: Levels, usable: Array, size: Array) -> Array:
            assert len(size) == len(asked.rates)
            return np.asarray(usable & (np.arange(4) == 0))

        monkeypatch.setattr(oef_columns, "near_columns", slowest)
        monkeypatch.setattr(oef_columns, "MOST", 2)
        columns = FewColumns(program)
        assert level_of(program, columns.solve("ortools")) == pytest.approx(expected, rel=1e-13)
        assert columns.chosen.sum() < columns.usable.sum()

    def test_include_closest_of_each_type(self) -> None:
        program = first_program(random_problem(5, 60, 3))
        assert program is not None
        usable = program.speedups > 0
        assert (near_columns(program, usable, program.rates).sum(axis=0) >= CLOSEST).all()

    def test_start_from_columns_before(self) -> None:
        """A program with another tenant held has the same optimum from both starts."""
        program = first_program(random_problem(6, 40, 4, capped=0.5))
        assert program is not None
        before = FewColumns(program)
        answer = before.solve("ortools")
        held = answer.cap_prices > 1e-7
        assert held.any()
        held_at = np.where(held, program.rates * level_of(program, answer), 0.0)
        after = Levels(
            *(program.speedups, program.capacity, program.rates, program.caps),
            *(held, held_at),
        )
        found, direct = FewColumns(after, before).solve("ortools"), Highs().levels(after)
        assert level_of(after, found) == pytest.approx(level_of(after, direct), rel=1e-9)
        fresh = FewColumns(after).solve("ortools")
        assert level_of(after, fresh) == pytest.approx(level_of(after, found), rel=1e-12)


class TestBytes:
    def test_do_not_depend_on_threads_hashes_or_history(self) -> None:
        digests = set()
        for threads, tenants in (("1", ["1000"]), ("2", ["300", "1000"])):
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
            done = subprocess.run(
                [sys.executable, "-c", DIGEST, *tenants],
                check=True, capture_output=True, text=True, env=environment,
            )  # fmt: skip
            digests.add(done.stdout)
        assert len(digests) == 1

    def test_do_not_depend_on_program_before(self) -> None:
        """The backend has solved a larger program before."""
        first, second = (first_program(random_problem(s, 20 + s, 4)) for s in (2, 1))
        assert first is not None
        assert second is not None
        backend = Fast()
        backend.levels(first)
        found, fresh = backend.levels(second), Fast().levels(second)
        assert found.shares.tobytes() == fresh.shares.tobytes()


class TestFailure:
    def never(self, *_: Any) -> Optimum | None:
        return None

    def test_is_an_error_if_work_of_held_tenants_is_impossible(
        self,
    ) -> None:
        """FewColumns are added, then work is given up, but no more than rounding explains."""
        program = first_program(random_problem(7, 12, 3))
        assert program is not None
        held = np.arange(12) < 6
        asked = Levels(
            *(program.speedups, program.capacity, program.rates, program.caps),
            *(held, np.where(held, 1e6, 0.0)),
        )
        columns = FewColumns(asked)
        with pytest.raises(SolverError, match="GLOP found no optimum"):
            columns.solve("ortools")
        assert columns.chosen[held].all()
        assert columns.size[0] == pytest.approx(1e6, rel=2e-8, abs=0.0)

    def test_falls_back_to_direct_highs_with_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FewColumns, "optimum", self.never)
        found = solve_shares(random_problem(8, 12, 3), ShareRule.NONCOOPERATIVE)
        assert (found.backend, found.status) == ("highs", "optimal")
        assert found.fallback == "fast: GLOP found no optimum"

    def test_is_an_error_after_many_programs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        program = first_program(random_problem(9, 12, 3))
        assert program is not None
        monkeypatch.setattr(FewColumns, "add_violated", lambda *_: True)
        monkeypatch.setattr(oef_columns, "SOLVES", 3)
        with pytest.raises(SolverError, match="still added after 3 programs"):
            FewColumns(program).solve("ortools")
