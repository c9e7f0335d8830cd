"""Test the deficit of a day on the dashboard, computed from a chart's points."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from portal.charts.deficits import day_deficit
from scheduling.selectors.rounds.histories import ClaimHistoryPoint

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def point(
    hours_ago: float, received: float, deserved: float, kind: str = "k80"
) -> ClaimHistoryPoint:
    at = NOW - timedelta(hours=hours_ago)
    return ClaimHistoryPoint(1, at, at, 1, kind, 0, 4, None, received, deserved)


class TestDayDeficit:
    def test_does_not_offset_shortfall_with_later_hours(self) -> None:
        """10 are deserved in each of three hours; 0, 20 and 6 are received."""
        points = [point(3, 50, 0), point(2.1, 50, 10), point(1.1, 70, 20), point(0.1, 76, 30)]
        found = day_deficit(points, NOW)
        assert found is not None
        assert (found.short_gpu_s, found.deserved_gpu_s) == (10 + 4, 30)
        assert found.share == pytest.approx(14 / 30)

    def test_nets_rounds_within_one_hour(self) -> None:
        points = [point(2, 0, 0), point(0.9, 0, 10), point(0.5, 20, 20), point(0, 20, 20)]
        found = day_deficit(points, NOW)
        assert found is not None
        assert found.short_gpu_s == 0

    def test_counts_hours_without_round_with_next_hour(self) -> None:
        found = day_deficit([point(9, 0, 0), point(1.5, 60, 100)], NOW)
        assert found is not None
        assert (found.short_gpu_s, found.deserved_gpu_s) == (40, 100)

    def test_nets_gpu_types(self) -> None:
        """A job that accepts two types may claim one and hold the other."""
        points = [
            *(point(1.5, 0, 0), point(1.5, 0, 0, "v100")),
            *(point(0.5, 0, 40), point(0.5, 40, 0, "v100")),
        ]
        found = day_deficit(points, NOW)
        assert found is not None
        assert (found.short_gpu_s, found.deserved_gpu_s) == (0, 40)

    def test_is_none_if_nothing_was_deserved(self) -> None:
        assert day_deficit([], NOW) is None
        assert day_deficit([point(2, 5, 5), point(1, 9, 5)], NOW) is None

    def test_counts_decreasing_sums_as_zero(self) -> None:
        points = [point(3, 100, 100), point(2, 10, 20), point(1, 20, 40)]
        found = day_deficit(points, NOW)
        assert found is not None
        assert (found.short_gpu_s, found.deserved_gpu_s) == (10, 20)
