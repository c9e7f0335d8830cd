"""OEF (Middleware 2024): its worked examples, and which of its claims are true.

Fractions are exact where the paper rounds. Its example of Gandiva_fair's trading is tested with
that policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from evenshare_core.formulations.problems import Array, ShareProblem, ShareSolution, virtual_tenants
from evenshare_core.formulations.shares import solve_shares

F = Fraction
Number = Fraction | float
Rows = Sequence[Sequence[float]]
BACKENDS = ("fast", "highs")
RTOL = 1e-6

THREE: Rows = [[1, 2], [1, 3], [1, 4]]
TWO: Rows = [[1, 2], [1, 5]]
ONE_EACH = [1.0, 1.0]


def solve(
    rows: Rows | Array,
    capacity: Sequence[float],
    rule: str,
    backend: str = "fast",
    *,
    weights: Sequence[float] | None = None,
    caps: Sequence[float] | None = None,
) -> ShareSolution:
    problem = ShareProblem(
        np.array(rows, dtype=float),
        np.array(capacity, dtype=float),
        None if weights is None else np.array(weights, dtype=float),
        None if caps is None else np.array(caps, dtype=float),
    )
    found = solve_shares(problem, rule, backend)
    assert (found.status, found.fallback) == ("optimal", "")
    return found


def floats(rows: Sequence[Sequence[Number]]) -> Array:
    return np.array([[float(value) for value in row] for row in rows])


def random_rows(seed: int, tenants: int, types: int) -> Array:
    """Draw speedups between 1 and about 10, slowest type first."""
    chance = np.random.default_rng(seed)
    return np.hstack(
        [np.ones((tenants, 1)), 1 + np.cumsum(chance.uniform(0, 3, (tenants, types - 1)), axis=1)]
    )


def ordered_rows(seed: int, tenants: int, types: int) -> Array:
    """Draw speedups; ratios of neighbouring types never fall from one tenant to the next."""
    chance = np.random.default_rng(seed)
    ratios = np.sort(chance.uniform(1, 2.5, (tenants, types - 1)), axis=0)
    return np.hstack([np.ones((tenants, 1)), np.cumprod(ratios, axis=1)])


class Golden(NamedTuple):
    name: str
    rule: str
    rows: Rows
    shares: Sequence[Sequence[Number]]
    weights: Sequence[float] | None = None
    caps: Sequence[float] | None = None


GOLDEN = [
    Golden("E2 cooperative", "cooperative", THREE, [[1, 0], [0, F(1, 2)], [0, F(1, 2)]]),
    Golden(
        "E3 one GPU at a time", "gavel", THREE,
        [[F(10, 11), F(1, 11)], [F(1, 11), F(5, 11)], [0, F(5, 11)]], caps=[1, 1, 1],
    ),
    Golden(
        "E3 many jobs", "gavel", THREE, [[1, F(5, 98)], [0, F(24, 49)], [0, F(45, 98)]],
    ),
    Golden("E6 cooperative", "cooperative", TWO, [[1, F(1, 4)], [0, F(3, 4)]]),
    Golden("E6 lie", "cooperative", [[1, 4], [1, 5]], [[1, F(3, 8)], [0, F(5, 8)]]),
    Golden("E6 non-cooperative", "noncooperative", TWO, [[1, F(4, 7)], [0, F(3, 7)]]),
    Golden("F2", "cooperative", [[1, 2], [1, 4]], [[1, F(1, 4)], [0, F(3, 4)]]),
    Golden("F2 lie", "cooperative", [[1, 3], [1, 4]], [[1, F(1, 3)], [0, F(2, 3)]]),
    Golden(
        "4.2.3 weights", "noncooperative", TWO, [[1, F(1, 3)], [0, F(2, 3)]], weights=[1, 2]
    ),
    Golden(
        "4.2.4 job types", "noncooperative", [[1, 2], [1, 3], [1, 5], [1, 5]],
        [[1, F(4, 37)], [0, F(15, 37)], [0, F(9, 37)], [0, F(9, 37)]],
    ),
    Golden("max efficiency (5)", "max_efficiency", THREE, [[1, 0], [0, 0], [0, 1]]),
    Golden("2.3.3 max-min", "max_min", THREE, [[F(1, 3), F(1, 3)]] * 3),
]  # fmt: skip


class TestWorkedExamples:
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
    def test_shares_match_paper(self, case: Golden, backend: str) -> None:
        found = solve(case.rows, ONE_EACH, case.rule, backend, weights=case.weights, caps=case.caps)
        np.testing.assert_allclose(found.shares, floats(case.shares), rtol=RTOL, atol=1e-9)

    @pytest.mark.parametrize(
        ("rule", "rows", "caps", "throughputs"),
        [
            ("cooperative", THREE, None, [1, F(3, 2), 2]),
            ("gavel", THREE, [1, 1, 1], [F(12, 11), F(16, 11), F(20, 11)]),
            ("gavel", THREE, None, [F(54, 49), F(72, 49), F(90, 49)]),
            ("cooperative", TWO, None, [F(3, 2), F(15, 4)]),
            ("noncooperative", TWO, None, [F(15, 7), F(15, 7)]),
            ("noncooperative", [[1, 2], [1, 3], [1, 5], [1, 5]], None, [F(45, 37)] * 4),
        ],
    )
    def test_throughputs_match_paper(
        self, rule: str, rows: Rows, caps: Sequence[float] | None, throughputs: list[F]
    ) -> None:
        found = solve(rows, ONE_EACH, rule, caps=caps)
        np.testing.assert_allclose(found.throughputs, [float(t) for t in throughputs], rtol=RTOL)
        assert found.total == pytest.approx(float(sum(throughputs)), rel=RTOL)

    def test_misreport_gains_a_sixth_in_cooperative_rule(self) -> None:
        """E6: the liar gains 16.7 %; the total falls by 7.14 %, which the paper rounds to 8."""
        honest, lie = (solve(rows, ONE_EACH, "cooperative") for rows in (TWO, [[1, 4], [1, 5]]))
        true = np.array(TWO) * lie.shares
        assert true.sum(axis=1)[0] == pytest.approx(1.75, rel=RTOL)
        assert true.sum() == pytest.approx(4.875, rel=RTOL)
        assert 1 - true.sum() / honest.total == pytest.approx(0.0714286, rel=1e-5)

    def test_shares_of_misreport_in_gavel(self) -> None:
        lie = solve([[1, 2.5], [1, 3], [1, 4]], ONE_EACH, "gavel", caps=[1, 1, 1])
        np.testing.assert_allclose(lie.shares[0], [127 / 149, 22 / 149], rtol=RTOL)

    def test_job_types_are_virtual_tenants(self) -> None:
        speedups, weights, owners = virtual_tenants([[[1, 2], [1, 3]], [[1, 5], [1, 5]]])
        found = solve(speedups, ONE_EACH, "noncooperative", weights=list(weights))
        np.testing.assert_allclose(found.throughputs, [45 / 37] * 4, rtol=RTOL)
        assert list(owners) == [0, 0, 1, 1]
        assert list(weights) == [0.5] * 4


class TestNoncooperativeRule:
    """Claims about (9) that are true, and counterexamples."""

    def test_overstating_never_gains(self) -> None:
        chance = np.random.default_rng(9)
        for seed in range(60):
            rows = random_rows(seed, 4, 3)
            honest = solve(rows, [2, 1, 1], "noncooperative").throughputs[0]
            claimed = rows.copy()
            claimed[0, 1:] *= chance.uniform(1, 2, 2)
            lie = solve(claimed, [2, 1, 1], "noncooperative")
            assert rows[0] @ lie.shares[0] <= honest * (1 + RTOL)

    @pytest.mark.parametrize(
        ("tenant", "told", "gets"),
        [(0, [1, 1], F(7, 3)), (1, [1, 4], F(5, 2)), (1, [1, 2], F(15, 4))],
    )
    def test_understating_can_gain(self, tenant: int, told: list[float], gets: F) -> None:
        claimed = [*TWO]
        claimed[tenant] = told
        lie = solve(claimed, ONE_EACH, "noncooperative")
        true = np.array(TWO[tenant]) @ lie.shares[tenant]
        assert true == pytest.approx(float(gets), rel=RTOL)
        assert true > 15 / 7

    def test_overstating_one_of_several_job_types_can_gain(self) -> None:
        types: list[list[float]] = [[1, 3], [1, 4], [1, 1]]
        speedups, weights, _ = virtual_tenants([types, [[1, 5]]])
        honest = solve(speedups, [1, 5], "noncooperative", weights=list(weights))
        # With a reported speedup of 3, the job type would tie with the first and share its GPUs.
        # Just below 3, it does not.
        claimed: list[list[float]] = [*types[:2], [1, 3 - 1e-9], [1, 5]]
        lie = solve(claimed, [1, 5], "noncooperative", weights=list(weights))
        assert honest.throughputs[:3].sum() == pytest.approx(1080 / 131, rel=RTOL)
        true = (np.array(types) * lie.shares[:3]).sum()
        assert true == pytest.approx(346 / 39, rel=RTOL)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_leaves_gpus_idle_if_a_tenant_cannot_use_them(self, backend: str) -> None:
        found = solve([[1, 0], [1, 2]], [1, 10], "noncooperative", backend)
        np.testing.assert_allclose(found.throughputs, [1, 1], rtol=RTOL)
        assert 10 - found.shares[:, 1].sum() == pytest.approx(9.5, rel=RTOL)

    def test_is_pareto_efficient_if_all_types_are_usable(self) -> None:
        """All GPU types have positive prices, so a tenant can gain only if another tenant loses."""
        for seed in range(40):
            found = solve(random_rows(seed, 5, 3), [2, 1, 1], "noncooperative")
            assert found.prices is not None
            assert (found.prices > 0).all()
            np.testing.assert_allclose(found.shares.sum(axis=0), [2, 1, 1], rtol=RTOL)

    def test_gives_fast_tenants_less_than_equal_split(self) -> None:
        found = solve(TWO, ONE_EACH, "noncooperative")
        assert found.throughputs[1] < solve(TWO, ONE_EACH, "max_min").throughputs[1]

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_has_at_most_n_plus_k_minus_1_shares(self, backend: str) -> None:
        for seed in range(40):
            for rows in (random_rows(seed, 6, 4), ordered_rows(seed, 6, 4)):
                found = solve(rows, [3, 2, 2, 1], "noncooperative", backend)
                assert np.count_nonzero(found.shares) <= 6 + 4 - 1

    def test_gives_adjacent_types_for_ordered_ratios(self) -> None:
        for seed in range(60):
            found = solve(ordered_rows(seed, 6, 4), [2, 2, 1, 1], "noncooperative")
            for row in found.shares:
                held = np.flatnonzero(row)
                assert held[-1] - held[0] == len(held) - 1

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_may_give_distant_types_under_dominance_order(self, backend: str) -> None:
        found = solve([[1, 2, 5], [1, 4, 6]], [2, 1, 1], "noncooperative", backend)
        expected: list[list[Number]] = [[2, 0, F(8, 11)], [0, 1, F(3, 11)]]
        np.testing.assert_allclose(found.shares, floats(expected), rtol=RTOL, atol=1e-9)
        np.testing.assert_allclose(found.throughputs, [62 / 11] * 2, rtol=RTOL)

    def test_weight_equals_number_of_identical_tenants(self) -> None:
        for seed in range(10):
            rows = random_rows(seed, 3, 3)
            weighted = solve(rows, [3, 2, 1], "noncooperative", weights=[1, 2, 3])
            copies = solve(np.repeat(rows, [1, 2, 3], axis=0), [3, 2, 1], "noncooperative")
            sums = np.add.reduceat(copies.shares, [0, 1, 3])
            np.testing.assert_allclose(weighted.shares, sums, rtol=RTOL, atol=1e-9)
            np.testing.assert_allclose(
                weighted.throughputs / [1, 2, 3], weighted.throughputs[0], rtol=RTOL
            )


class TestCooperativeRule:
    """Claims about (10) that are true, and counterexamples."""

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_is_envy_free_and_beats_equal_split(self, backend: str) -> None:
        for seed in range(40):
            rows, weights = random_rows(seed, 5, 3), [1.0, 1.0, 2.0, 3.0, 5.0]
            found = solve(rows, [4, 2, 1], "cooperative", backend, weights=weights)
            per_weight = found.shares / np.array(weights)[:, None]
            seen = rows @ per_weight.T
            assert (seen <= seen.diagonal()[:, None] * (1 + RTOL)).all()
            split = solve(rows, [4, 2, 1], "max_min", weights=weights)
            assert (found.throughputs >= split.throughputs * (1 - RTOL)).all()

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_is_not_pareto_efficient(self, backend: str) -> None:
        """Theorem 5.3 is false: with envy, one tenant can gain while no other loses."""
        rows = [[1, 1, 1], [1, 4, 12], [1, 4, 16]]
        found = solve(rows, [1, 1, 1], "cooperative", backend)
        np.testing.assert_allclose(found.throughputs, [1, 8, 10], rtol=RTOL)
        better = floats([[1, 0, 0], [0, 1, F(1, 3)], [0, 0, F(2, 3)]])
        np.testing.assert_allclose((np.array(rows) * better).sum(axis=1), [1, 8, 32 / 3], rtol=RTOL)
        assert np.array(rows[0]) @ better[1] > np.array(rows[0]) @ better[0]

    @pytest.mark.parametrize("first", [1.0, 1.5, 2.0])
    def test_has_many_optima(self, first: float) -> None:
        """All u1 in [1, 2] give the same total without envy."""
        rows = np.array([[1, 1], [1, 5], [1, 5]])
        rest = (2 - first) / 2
        shares = np.array([[first, 0], [rest, 0.5], [rest, 0.5]])
        seen = rows @ shares.T
        assert (seen <= seen.diagonal()[:, None]).all()
        best = solve(rows, [2, 1], "cooperative")
        assert (rows * shares).sum() == pytest.approx(best.total, rel=RTOL)

    def test_can_have_more_than_n_plus_k_minus_1_shares(self) -> None:
        more = [
            seed
            for seed in range(60)
            if np.count_nonzero(
                solve(random_rows(seed, 5, 4), [1, 1, 1, 1], "cooperative").shares > 1e-7
            )
            > 5 + 4 - 1
        ]
        assert more

    def test_weight_equals_number_of_identical_tenants(self) -> None:
        for seed in range(10):
            rows = random_rows(seed, 3, 3)
            weighted = solve(rows, [3, 2, 1], "cooperative", weights=[1, 2, 3])
            copies = solve(np.repeat(rows, [1, 2, 3], axis=0), [3, 2, 1], "cooperative")
            assert weighted.total == pytest.approx(copies.total, rel=RTOL)


class TestSection62:
    """Four tenants, with the shares of figures 4 and 5."""

    ROWS: Rows = [[1, 1.2, 1.4], [1, 1.3, 1.7], [1, 1.5, 2.0], [1, 1.6, 2.5]]
    POOL = [8.0, 8.0, 8.0]

    def test_throughputs_stay_equal_after_departure(self) -> None:
        four = solve(self.ROWS, self.POOL, "noncooperative").throughputs
        three = solve(self.ROWS[:3], self.POOL, "noncooperative").throughputs
        np.testing.assert_allclose(four, four[0], rtol=RTOL)
        np.testing.assert_allclose(three, three[0], rtol=RTOL)
        assert three[0] > four[0]

    def test_overstating_tenant_loses(self) -> None:
        honest = solve(self.ROWS, self.POOL, "noncooperative")
        lie = solve([[1, 1.5, 1.9], *self.ROWS[1:]], self.POOL, "noncooperative")
        true = (np.array(self.ROWS) * lie.shares).sum(axis=1)
        assert true[0] < honest.throughputs[0]
        assert true.sum() < honest.total

    def test_two_job_types_split_throughput_of_tenant(self) -> None:
        types = [[self.ROWS[0], [1, 1.8, 2.2]], *([row] for row in self.ROWS[1:])]
        speedups, weights, _ = virtual_tenants(types)
        found = solve(speedups, self.POOL, "noncooperative", weights=list(weights))
        np.testing.assert_allclose(found.throughputs[:2] * 2, found.throughputs[2], rtol=RTOL)

    def test_cooperative_rule_beats_max_min(self) -> None:
        found = solve(self.ROWS, self.POOL, "cooperative").throughputs
        split = solve(self.ROWS, self.POOL, "max_min").throughputs
        assert (found >= split * (1 - RTOL)).all()
        assert found[3] / split[3] > 1.1
