"""Test ties of optimal shares: the chosen share equals a recomputation with scipy programs."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.formulations.problems import Array, ShareProblem, ShareRule
from evenshare_core.formulations.shares import solve_shares, sorted_rows

TOLERANCE = 1e-6
# Speedups, GPUs, weights, and throughputs; the third is the example of docs/policies/oef.md.
TIED = [
    ([[1, 3], [1, 3], [1, 2]], [3, 1], [2, 2, 2], [2, 2, 2]),
    ([[1, 1], [1, 0]], [2, 3], [2, 1], [10 / 3, 5 / 3]),
    ([[1, 1], [1, 5], [1, 5]], [2, 1], [1, 1, 1], [2, 2.5, 2.5]),
    ([[1, 2], [1, 1], [1, 2]], [1, 2], [1, 1, 2], [4 / 3, 1, 8 / 3]),
    ([[1, 1, 1], [1, 4, 12], [1, 4, 16]], [1, 1, 1], [1, 1, 1], [1, 8, 10]),
]


def tied_problem(seed: int) -> ShareProblem:
    """Return a problem with few different speedups, some 0, so that many shares are optimal."""
    chance = np.random.default_rng(seed)
    tenants, types = int(chance.integers(2, 5)), int(chance.integers(1, 4))
    faster = 1 + np.cumsum(chance.integers(0, 3, (tenants, types - 1)), axis=1)
    rows = np.hstack([np.ones((tenants, 1)), faster]).astype(float)
    rows[chance.uniform(size=rows.shape) < 0.15] = 0
    rows[:, 0] = np.maximum(rows[:, 0], rows.max(axis=1) == 0)
    capacity, weights = chance.integers(1, 4, types), chance.integers(1, 3, tenants)
    return ShareProblem(rows, capacity.astype(float), weights.astype(float))


def lexicographic_levels(problem: ShareProblem, total: float) -> Array:
    """Lower the largest throughput per weight as far as the total allows, then the next largest.

    Each stage is a program with x, the level t, the total, all envy rows, and upper bounds. A
    tenant gets an upper bound if no solution at the stage's level gives it a lower throughput.
    """
    # imported late, because scipy takes a third of a second
    from scipy.optimize import linprog

    speeds, pi = problem.speedups, problem.pi
    tenants, types = speeds.shape
    levels = speeds / pi[:, None]

    def row(tenant: int, of: Array, factor: float = 1.0) -> Array:
        made = np.zeros(tenants * types + 1)
        made[tenant * types : (tenant + 1) * types] = factor * of
        return made

    least = [row(i, speeds[i], -1.0) for i in range(tenants)]
    rows, bounds = [np.sum(least, axis=0)], [-total * (1 - 1e-11)]
    for kind in range(types):
        rows.append(np.sum([row(i, np.eye(types)[kind]) for i in range(tenants)], axis=0))
        bounds.append(float(problem.capacity[kind]))
    for one, two in permutations(range(tenants), 2):
        rows.append(row(two, speeds[one] / pi[two]) - row(one, speeds[one] / pi[one]))
        bounds.append(0.0)
    upper = [(0, None if speed > 0 else 0) for speed in speeds.ravel()]
    stuck: dict[int, float] = {}
    while len(stuck) < tenants:
        open_ = [i for i in range(tenants) if i not in stuck]
        held = [row(i, levels[i]) for i in stuck]
        limits = [*bounds, *(level + 1e-10 for level in stuck.values())]
        top = np.append(np.zeros(tenants * types), 1.0)
        ceilings = [row(i, levels[i]) - top for i in open_]
        asked = linprog(
            top, A_ub=[*rows, *held, *ceilings], b_ub=[*limits, *[0.0] * len(open_)],
            bounds=[*upper, (0, None)],
        )  # fmt: skip
        at = float(asked.fun)
        below = [row(i, levels[i]) for i in open_]
        limits += [at + 1e-10] * len(open_)
        for tenant in open_:
            lowest = linprog(
                row(tenant, levels[tenant]), A_ub=[*rows, *held, *below], b_ub=limits,
                bounds=[*upper, (0, None)],
            )  # fmt: skip
            if lowest.fun > at - TOLERANCE:
                stuck[tenant] = at
    return np.array([stuck[tenant] for tenant in range(tenants)])


class TestTie:
    @pytest.mark.parametrize("backend", ["fast", "highs"])
    @pytest.mark.parametrize(("rows", "capacity", "weights", "expected"), TIED)
    def test_is_broken_in_favor_of_lowest_throughput(
        self,
        rows: list[list[int]],
        capacity: list[int],
        weights: list[int],
        expected: list[float],
        backend: str,
    ) -> None:
        asked = ShareProblem(rows, capacity, weights)  # type: ignore[arg-type]  # lists are read
        found = solve_shares(asked, ShareRule.COOPERATIVE, backend)
        np.testing.assert_allclose(found.throughputs, expected, rtol=1e-6)

    @pytest.mark.parametrize("seed", range(40))
    def test_matches_lexicographic_programs(self, seed: int) -> None:
        asked = tied_problem(seed)
        found = solve_shares(asked, ShareRule.COOPERATIVE)
        expected = lexicographic_levels(asked, found.total)
        np.testing.assert_allclose(found.throughputs / asked.pi, expected, atol=1e-5)


class TestSortedRows:
    @given(
        st.integers(1, 3).flatmap(
            lambda width: st.lists(
                st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=width, max_size=width),
                min_size=1,
                max_size=5,
            )
        )
    )
    def test_is_stable_lexicographic_order(self, rows: list[list[float]]) -> None:
        expected = sorted(range(len(rows)), key=lambda place: (rows[place], place))
        assert sorted_rows(np.array(rows)).tolist() == expected
