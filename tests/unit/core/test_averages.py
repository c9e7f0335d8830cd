"""Test recent averages in integers, and how they detect changes."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.averages import (
    BEFORE_CHANGES,
    RECENT,
    Average,
    add_report,
)


def fed(values: Iterable[int]) -> tuple[Average, list[int]]:
    """Return the average of the reports, and the numbers (from 1) of the detected changes."""
    average, changes = Average(), []
    for number, value in enumerate(values, 1):
        average, is_changed = add_report(average, value)
        changes += [number] if is_changed else []
    return average, changes


class TestAverage:
    def test_first_reports_give_plain_mean(self) -> None:
        values = [1000, 1100, 900, 1040]
        average, changes = fed(values)
        assert (average.reports, changes) == (4, [])
        assert abs(average.mean - Fraction(sum(values), 4)) <= 2

    def test_equal_reports_give_exact_mean_without_spread(self) -> None:
        assert fed([777] * 100) == (Average(100, 777, 0, 0, 0), [])

    def test_follows_slow_drift(self) -> None:
        """A drift that is too slow to count as a change still moves the average."""
        values = [10_000 + 20 * n for n in range(200)]
        average, changes = fed(values)
        assert changes == []
        # The average is as far behind the drift as the number of reports that it averages.
        assert abs(average.mean - (values[-1] - 20 * (RECENT - 1))) <= 20

    @pytest.mark.parametrize("factor", [Fraction(3, 4), Fraction(5, 4), 4, Fraction(1, 4)])
    def test_restarts_within_few_reports_after_change(self, factor: Fraction) -> None:
        new = int(1000 * factor)
        average, changes = fed([1000] * 20 + [new] * 10)
        assert len(changes) == 1
        assert 22 <= changes[0] <= 25
        assert (average.mean, average.reports) == (new, 31 - changes[0])

    def test_ignores_single_outlier(self) -> None:
        average, changes = fed([1000] * 20 + [100_000] + [1000] * 20)
        assert changes == []
        assert 1000 <= average.mean <= 1030

    def test_detects_no_change_before_enough_reports(self) -> None:
        assert fed([1000] * (BEFORE_CHANGES - 2) + [2000] * 2)[1] == []

    def test_noisy_reports_rarely_restart_average(self) -> None:
        rng = Random(7)  # noqa: S311 - reports, not a secret
        average, changes = fed([max(1, round(rng.gauss(10**6, 10**5))) for _ in range(500)])
        assert len(changes) <= 2
        assert abs(average.mean - 10**6) < 10**5
        assert 40 <= average.spread_milli <= 120

    @given(st.lists(st.integers(1, 10**15), min_size=1, max_size=60))
    def test_mean_stays_between_smallest_and_largest_report(self, values: list[int]) -> None:
        average, _ = fed(values)
        assert min(values) <= average.mean <= max(values)
        assert 0 <= average.deviation <= max(values)
        assert 1 <= average.reports <= len(values)
        assert min(average.up_milli, average.down_milli) >= 0
