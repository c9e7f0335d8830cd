"""Test envy, sharing incentive, Pareto slack and misreports, on cases solved by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.fairness.pareto import pareto_slack
from evenshare_core.fairness.properties import (
    Array,
    ShapeError,
    capacity_use,
    envy_matrix,
    misreport,
    sharing_incentive,
    throughput_spread,
    throughputs,
)
from tests.patience import some


def arr(*rows: Sequence[float] | float) -> Array:
    return np.array(rows, float)


# Example E6 of OEF: W = (1,2), (1,5), one GPU of each type.
W6, M6 = arr((1, 2), (1, 5)), arr(1, 1)
COOPERATIVE6 = arr((1, 0.25), (0, 0.75))


class TestEnvy:
    def test_papers_cooperative_optimum_is_envy_free(self) -> None:
        envy = envy_matrix(W6, COOPERATIVE6, np.ones(2))
        # The first row is exactly indifferent: 2 x 0.75 = 1 + 2 x 0.25. The second is far from
        # envy.
        assert envy == pytest.approx(arr((0, 0), (-1.5, 0)))

    def test_equals_gain_with_other_rows_share(self) -> None:
        envy = envy_matrix(W6, arr((1, 0), (0, 1)), np.ones(2))
        assert envy.tolist() == [[0, 1], [-4, 0]]

    def test_is_measured_per_unit_of_weight(self) -> None:
        """A tenant with twice the weight may hold twice the share without envy."""
        envy = envy_matrix(arr((1,), (1,)), arr((2,), (1,)), arr(2, 1))
        assert envy.tolist() == [[0, 0], [0, 0]]

    def test_counts_only_usable_part_of_other_share(self) -> None:
        """The first row can use only one GPU.

        It counts the fast one, but not the second row's other two.
        """
        shares = arr((1, 0), (2, 1))
        assert envy_matrix(W6, shares, np.ones(2)).tolist() == [[0, 3], [-6, 0]]
        limited = envy_matrix(W6, shares, np.ones(2), limits=arr(1, 9))
        assert limited.tolist() == [[0, 1], [-6, 0]]

    def test_is_zero_for_equal_shares(self) -> None:
        assert not envy_matrix(W6, arr((0.5, 0.5), (0.5, 0.5)), np.ones(2)).any()

    @pytest.mark.parametrize(
        ("speedups", "shares", "weights"),
        [
            (arr((1, 2)), arr((1, 2), (1, 2)), arr(1)),
            (arr((1, 2)), arr((1, 2)), arr(0)),
            (arr((1, -2)), arr((1, 2)), arr(1)),
            (arr((1, np.nan)), arr((1, 2)), arr(1)),
        ],
    )
    def test_rejects_invalid_arrays(self, speedups: Array, shares: Array, weights: Array) -> None:
        with pytest.raises(ShapeError):
            envy_matrix(speedups, shares, weights)


class TestSharingIncentive:
    def test_compares_with_the_weighted_equal_split(self) -> None:
        got, alone = sharing_incentive(W6, COOPERATIVE6, M6, np.ones(2))
        assert (got.tolist(), alone.tolist()) == ([1.5, 3.75], [1.5, 3.0])

    def test_greater_weight_raises_equal_split(self) -> None:
        _, alone = sharing_incentive(W6, COOPERATIVE6, M6, arr(1, 3))
        assert alone.tolist() == [0.75, 4.5]

    def test_limits_equal_split_to_fastest_usable_gpus(self) -> None:
        w, m, pi = arr((1, 2), (1, 5)), arr(8, 8), np.ones(2)
        _, alone = sharing_incentive(w, np.zeros((2, 2)), m, pi, limits=arr(5, 100))
        assert alone.tolist() == [4 * 2 + 1, 4 + 4 * 5]

    def test_is_empty_without_rows(self) -> None:
        none = np.zeros((0, 2))
        got, alone = sharing_incentive(none, none, M6, np.zeros(0))
        assert got.size == alone.size == 0


class TestParetoSlack:
    def test_is_zero_for_efficient_allocation(self) -> None:
        assert pareto_slack(W6, COOPERATIVE6, M6) == pytest.approx(0, abs=1e-7)

    def test_matches_papers_counterexample(self) -> None:
        """Cooperative OEF is not Pareto-efficient: E = (1, 8, 10) can be (1, 8, 10.6667)."""
        w = arr((1, 1, 1), (1, 4, 12), (1, 4, 16))
        assert pareto_slack(w, arr((1, 0, 0), (0, 1, 1 / 3), (0, 0, 2 / 3)), np.ones(3)) < 1e-7
        optimum = arr((1, 0, 0), (0, 0.5, 0.5), (0, 0.5, 0.5))
        assert throughputs(w, optimum).tolist() == [1, 8, 10]
        found = pareto_slack(w, optimum, np.ones(3))
        assert found == pytest.approx(2 / 3)

    def test_counts_idle_gpus(self) -> None:
        assert pareto_slack(arr((1, 2)), arr((1, 0)), arr(1, 3)) == pytest.approx(6)

    def test_ignores_gpus_beyond_usable_limit(self) -> None:
        found = pareto_slack(arr((1, 2)), arr((1, 0)), arr(1, 3), limits=arr(1))
        assert found == pytest.approx(1)

    def test_is_zero_for_shares_above_capacity(self) -> None:
        assert pareto_slack(arr((1, 2)), arr((2, 5)), arr(1, 3)) == pytest.approx(0, abs=1e-7)

    @settings(max_examples=some())
    @given(st.integers(0, 2**32 - 1))
    def test_is_between_zero_and_best_total(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n, k = rng.integers(1, 6), rng.integers(1, 4)
        w = 1 + 4 * rng.random((n, k))
        m = rng.integers(1, 9, k).astype(float)
        x = rng.dirichlet(np.ones(n), k).T * m
        slack = pareto_slack(w, x, m)
        assert 0 <= slack <= float((w.max(axis=0) * m).sum() - throughputs(w, x).sum()) + 1e-6


class TestThroughputSpreadAndCapacityUse:
    def test_spread_is_zero_for_equal_throughput_per_weight(self) -> None:
        w, x = arr((1, 2), (1, 5)), arr((1, 1 / 3), (0, 2 / 3))
        assert throughput_spread(w, x, arr(1, 2)) == pytest.approx(0)
        assert throughput_spread(w, x, arr(1, 1)) == pytest.approx(0.5)

    def test_capacity_use_sums_shares_by_type(self) -> None:
        assert capacity_use(COOPERATIVE6).tolist() == [1, 1]


class TestMisreport:
    def test_scales_all_types_except_slowest(self) -> None:
        assert misreport(arr(1, 2, 4), 1.5).tolist() == [1, 3, 6]

    def test_is_never_below_slowest_type(self) -> None:
        assert misreport(arr(1, 2, 4), 0.4).tolist() == [1, 1, 1.6]

    def test_keeps_zero_speed_of_unusable_type(self) -> None:
        assert misreport(arr(0, 2, 4), 2).tolist() == [0, 2, 8]
        assert misreport(arr(0, 0), 2).tolist() == [0, 0]
