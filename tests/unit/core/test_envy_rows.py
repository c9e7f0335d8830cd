"""Test the envy rows of the cooperative program: which are added and dropped, and that it ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenshare_core.formulations.oef_cooperative import (
    KEEP,
    SMALL,
    EnvyModel,
    Pairs,
    adjacent,
    solve,
    start,
)
from evenshare_core.formulations.problems import Array
from evenshare_core.formulations.programs import EnvyFree

# Speedups, GPUs, weights. The tenants are so similar that a solve with more rows has the same
# total.
WITH_A_PAUSE = [
    (
        [[1, 1, 2, 4], [1, 1, 3, 3], [1, 2, 4, 5], [1, 3, 3, 4], [1, 3, 4, 4]],
        [2, 3, 1, 2],
        [1, 1, 1, 1, 1],
    ),
    (
        [[1, 1, 1], [1, 1, 2], [1, 1, 3], [1, 2, 2], [1, 2, 3]],
        [2, 3, 1],
        [1, 1, 1, 1, 3],
    ),
]


def program(speedups: object, capacity: object, weights: object) -> EnvyFree:
    rows = np.array(speedups, dtype=float)
    free = np.full(len(rows), np.inf)
    return EnvyFree(
        *(rows, np.array(capacity, dtype=float), np.array(weights, dtype=float)),
        *(free, np.ones(len(rows), dtype=bool), free),
    )


def random_program(seed: int, tenants: int = 30) -> EnvyFree:
    chance = np.random.default_rng(seed)
    faster = 1 + np.cumsum(chance.uniform(0, 3, (tenants, 3)), axis=1)
    rows = np.hstack([np.ones((tenants, 1)), faster])
    weights = np.ones(tenants)
    return program(rows[np.lexsort(rows.T[::-1])], chance.integers(1, 9, 4), weights)


def ordered_program(seed: int, tenants: int) -> EnvyFree:
    """Return a program in which, from tenant to tenant, no ratio of adjacent types falls."""
    chance = np.random.default_rng(seed)
    ratios = np.sort(chance.uniform(1, 2, (tenants, 3)), axis=0)
    rows = np.hstack([np.ones((tenants, 1)), np.cumprod(ratios, axis=1)])
    return program(rows, chance.integers(1, 9, 4), np.ones(tenants))


class Watched(EnvyModel):
    """A model that records the totals of its solves and drops."""

    def __init__(self, asked: EnvyFree) -> None:
        super().__init__(asked)
        self.totals: list[float] = []
        self.dropped_at: list[float] = []

    def violated(self, values: Array) -> Pairs | None:
        self.totals.append(self.program.objective())
        return super().violated(values)

    def drop(self, values: Array) -> None:
        """Drop rows, and compare them with those found by computing the slack row by row."""
        self.dropped_at.append(self.program.objective())
        binds_nothing = self.program.basic_rows()[self.fixed :]
        before = list(zip(*(side.tolist() for side in self.pairs), strict=True))
        bundles = values.reshape(self.tenants, self.types).tolist()
        speeds = self.speedups.tolist()

        def worth(tenant: int, holder: int) -> float:
            return math.fsum(s * x for s, x in zip(speeds[tenant], bundles[holder], strict=True))

        mean = sum(worth(tenant, tenant) for tenant in range(self.tenants)) / self.tenants
        stays = [
            (one, two)
            for (one, two), is_basic in zip(before, binds_nothing, strict=True)
            if not is_basic or worth(one, one) - worth(one, two) <= KEEP * mean
        ]
        super().drop(values)
        assert list(zip(*(side.tolist() for side in self.pairs), strict=True)) == stays
        assert {tuple(pair) for pair in np.argwhere(self.have).tolist()} == {
            *stays,
            *((tenant, tenant) for tenant in range(self.tenants)),
        }


def begin(asked: EnvyFree) -> Watched:
    """Start with only one row per tenant, towards the next tenant: most rows are missing."""
    model = Watched(asked)
    model.add((np.arange(model.tenants - 1), np.arange(1, model.tenants)))
    return model


class TestEnvyRows:
    @pytest.mark.parametrize("seed", range(6))
    def test_slack_rows_are_dropped(self, seed: int) -> None:
        model = begin(random_program(seed))
        model.optimum()
        assert model.dropped_at

    @pytest.mark.parametrize(("speedups", "capacity", "weights"), WITH_A_PAUSE)
    def test_rows_are_dropped_only_while_total_falls(
        self, speedups: list[list[int]], capacity: list[int], weights: list[int]
    ) -> None:
        """Without this condition the same rows could be added and dropped forever."""
        model = begin(program(speedups, capacity, weights))
        model.optimum()
        falls = [b < a * (1 - 1e-9) for a, b in zip(model.totals, model.totals[1:], strict=False)]
        assert not all(falls[:-1]), "there was a pause before the last solve"
        expected = [model.totals[0]]
        expected += [b for b, fell in zip(model.totals[1:-1], falls, strict=False) if fell]
        assert model.dropped_at == expected

    @pytest.mark.parametrize("seed", range(6))
    def test_result_satisfies_rows_missing_from_program(self, seed: int) -> None:
        """The program has only a few rows, but its result satisfies all envy rows."""
        asked = random_program(seed)
        found = solve(asked, name="fast").shares
        seen = asked.speedups @ found.T
        assert (seen - seen.diagonal()[:, None]).max() <= 1e-7


class TestInitialRows:
    """The number of solves shows how good the initial guess is; it is deterministic."""

    def test_ordered_ratios_need_at_most_two_solves(self) -> None:
        for seed in range(4):
            model = Watched(ordered_program(seed, 60))
            model.add(adjacent(model.envious))
            model.optimum()
            assert len(model.totals) <= 2

    @pytest.mark.parametrize("tenants", [60, 120], ids=["rows of neighbours", "rows of a sample"])
    def test_random_programs_need_at_most_eight_solves(self, tenants: int) -> None:
        assert 60 <= SMALL < 120, "both ways to start"
        for seed in (0, 1, 5):
            asked = random_program(seed, tenants)
            model = Watched(asked)
            model.add(start(asked))
            model.optimum()
            assert len(model.totals) <= 8
