"""Test which policies a chart of throughput shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scheduling.selectors.pools.throughput import POINTS, ThroughputPoint, policy_periods, thin

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


class TestPolicyPeriods:
    def test_are_consecutive_rounds_of_one_policy(self) -> None:
        told = [(1, "a", 10), (2, "a", 21), (3, "b", 40), (4, "a", 8)]
        rows = policy_periods(
            [ThroughputPoint(number, at(number), milli, name) for number, name, milli in told]
        )
        assert [(row.policy, row.first, row.rounds, row.mean_milli) for row in rows] == [
            ("a", 1, 2, 15),
            ("b", 3, 1, 40),
            ("a", 4, 1, 8),
        ]

    def test_thinning_keeps_last_round(self) -> None:
        moments = [ThroughputPoint(number, at(number), 1, "a") for number in range(1999)]
        shown = thin(moments)
        assert len(shown) <= POINTS
        assert shown[-1] == moments[-1]
