"""Test the remaining work of a job with an uncertain estimate: a truncated normal distribution."""

from __future__ import annotations

from math import erfc, exp, pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.estimation.remaining import LEAST_PERCENT, work_left
from evenshare_core.units import HOUR_US, MINUTE_US

WHOLE_US = 10 * HOUR_US


def hazard(z: float) -> float:
    return exp(-z * z / 2) / sqrt(2 * pi) / (erfc(z / sqrt(2)) / 2)


@pytest.mark.parametrize("z", [-2.5, -1.1, 0.0, 0.6, 1.3, 2.0, 3.9])
def test_matches_truncated_normal_distribution(z: float) -> None:
    """With a standard error of one tenth, the correction for the job's start is negligible."""
    error_us = WHOLE_US // 10
    ran_us = round(WHOLE_US + z * error_us)
    left = work_left(WHOLE_US, ran_us, 100)
    mean = error_us * (hazard(z) - z)
    deviation = error_us * sqrt(1 + z * hazard(z) - hazard(z) ** 2)
    assert left.mean_us == pytest.approx(max(mean, WHOLE_US * LEAST_PERCENT / 100), rel=0.01)
    assert left.deviation_us == pytest.approx(deviation, rel=0.01)


@pytest.mark.parametrize("error_milli", [1, 100, 577, 1000, 30_000])
def test_new_job_has_its_estimate_and_error(
    error_milli: int,
) -> None:
    left = work_left(WHOLE_US, 0, error_milli)
    assert left == (WHOLE_US, WHOLE_US * error_milli // 1000)


def test_zero_error_leaves_remainder_of_at_least_5_percent() -> None:
    assert work_left(WHOLE_US, HOUR_US) == (9 * HOUR_US, 0)
    assert work_left(WHOLE_US, WHOLE_US + HOUR_US) == (30 * MINUTE_US, 0)
    assert work_left(1, 7) == (1, 0)


def test_job_at_its_estimate_has_work_left() -> None:
    """With a standard error of one quarter, the average work left is 0.8 standard errors."""
    left = work_left(WHOLE_US, WHOLE_US, 250)
    assert left.mean_us == WHOLE_US // 4 * 798 // 1000
    assert left.deviation_us == WHOLE_US // 4 * 603 // 1000


def test_work_left_is_constant_beyond_four_errors() -> None:
    late = work_left(WHOLE_US, WHOLE_US * 2, 250)
    assert work_left(WHOLE_US, WHOLE_US * 50, 250) == late
    assert late.mean_us == WHOLE_US // 4 * 226 // 1000


@given(
    whole_us=st.integers(0, 10**16),
    shares=st.lists(st.integers(0, 5000), min_size=2, max_size=2).map(sorted),
    error_milli=st.integers(0, 100_000),
)
def test_expected_end_never_moves_earlier(
    whole_us: int, shares: list[int], error_milli: int
) -> None:
    """If a job runs on, its expected end does not move earlier, apart from small errors."""
    first, second = (whole_us * share // 1000 for share in shares)
    before, after = (
        work_left(whole_us, first, error_milli),
        work_left(whole_us, second, error_milli),
    )
    # Between two points of the table, the straight line is slightly above the curve.
    off_us = 3 + whole_us * error_milli // 1000 // 500
    assert second + after.mean_us >= first + before.mean_us - off_us
    assert 0 <= after.deviation_us <= max(1, whole_us * error_milli // 1000)
    assert after.mean_us >= 1


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_rejects_negative_numbers(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 0"):
        work_left(*numbers)
