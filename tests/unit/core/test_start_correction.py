"""Test correction factors of start estimates: quantiles of past ratios, also of waiting jobs."""

from __future__ import annotations

import pytest

from evenshare_core.simulation.start_correction import (
    LEAST_PAST,
    MOST_FACTOR,
    PAST_MOST,
    Correction,
    Factors,
    PastEstimate,
    correction_by,
)
from evenshare_core.units import HOUR_US, MINUTE_US

LEASE_US = 15 * MINUTE_US


def past(*waits_h: float, said_h: float = 1.0) -> list[PastEstimate]:
    """Return past estimates of `said_h` hours for jobs that waited `waits_h` hours."""
    said_us = int(said_h * HOUR_US)
    return [PastEstimate(said_us, 2 * said_us, int(wait * HOUR_US)) for wait in waits_h]


def waiting(count: int, seen_h: float) -> list[PastEstimate]:
    return [PastEstimate(HOUR_US, 2 * HOUR_US, None, int(seen_h * HOUR_US))] * count


class TestFactor:
    def test_is_quantile_of_past_scores(self) -> None:
        scores = [index / 50 for index in range(1, 101)]
        long = correction_by(past(*scores), LEASE_US).long
        assert long == Factors(51 / 50, 98 / 50 / 2, 100)

    def test_is_neutral_with_too_few_scores(self) -> None:
        long = correction_by(past(*[0.1] * (LEAST_PAST - 1)), LEASE_US).long
        assert long == Factors(1.0, 1.0, LEAST_PAST - 1)
        assert correction_by([], LEASE_US) == Correction(LEASE_US)

    def test_p90_uses_worst_of_few_scores(self) -> None:
        assert correction_by(past(0.1, 6.0, 0.2), LEASE_US).long == Factors(1.0, 3.0, 3)

    def test_is_limited_to_maximum(self) -> None:
        long = correction_by(past(*[100.0] * 50), LEASE_US).long
        assert (long.p50, long.p90) == (MOST_FACTOR, MOST_FACTOR)

    def test_uses_newest_scores(self) -> None:
        rows = past(*[2.0] * PAST_MOST, *[0.1] * 5 * PAST_MOST)
        assert correction_by(rows, LEASE_US).long.p50 == 2.0

    def test_counts_zero_wait_as_one_lease(self) -> None:
        short = correction_by(past(*[0.125] * 30, said_h=0), LEASE_US).short
        assert (short.p50, short.past) == (0.5, 30)


class TestWaitingJobs:
    def test_increase_factor(self) -> None:
        """Half of the jobs started early, and the other half still waits.

        Without the waiting jobs, all jobs would seem to start early.
        """
        started = past(*[0.5] * 30)
        without = correction_by(started, LEASE_US).long
        with_them = correction_by([*started, *waiting(40, 3.0)], LEASE_US).long
        assert (without.p50, with_them.p50, with_them.past) == (0.5, 3.0, 70)
        assert with_them.p90 > without.p90

    def test_new_waiting_jobs_do_not_change_factor(self) -> None:
        """A waiting job counts only with its wait so far, so new jobs make no estimate earlier."""
        started = past(*[0.5, 1.5] * 20)
        assert correction_by([*started, *waiting(400, 0.0)][:PAST_MOST], LEASE_US) == (
            correction_by(started, LEASE_US)
        )

    def test_are_ignored_before_p50(self) -> None:
        assert correction_by(waiting(50, 0.9), LEASE_US).long == Factors(1.0, 1.0, 0)

    @pytest.mark.parametrize(("seen_h", "p50"), [(1.0, 1.0), (4.0, 4.0)])
    def test_without_started_jobs_only_increase_factor(self, seen_h: float, p50: float) -> None:
        assert correction_by(waiting(50, seen_h), LEASE_US).long.p50 == p50


class TestGroup:
    def test_uses_own_scores(self) -> None:
        rows = past(*[0.0] * 30, said_h=0) + past(*[3.0] * 30)
        made = correction_by(rows, LEASE_US)
        assert (made.short.p50, made.long.p50) == (0.0, 3.0)
        assert made.corrected(0, 0) == (0, 0)
        assert made.corrected(HOUR_US, None) == (3 * HOUR_US, None)

    def test_small_group_uses_scores_of_all(self) -> None:
        rows = past(*[0.0] * 3, said_h=0) + past(*[3.0] * 30)
        made = correction_by(rows, LEASE_US)
        assert made.short == Factors(3.0, made.short.p90, 33)


class TestP90:
    def test_is_never_before_p50(self) -> None:
        made = Correction(LEASE_US, Factors(), Factors(3.0, 0.5, 20))
        assert made.corrected(HOUR_US, HOUR_US) == (3 * HOUR_US, 3 * HOUR_US)
