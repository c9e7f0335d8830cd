"""Test that few evaluations are stored, whatever their order of arrival."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare.runtime.evaluations import Criterion
from evenshare.runtime.evaluations import thinned as thinned_by_client
from evenshare_core.estimation.evaluations import (
    HISTORY_MAX,
    METRIC_MOST,
    MetricPoint,
    StopCriterion,
    merge_evaluations,
    refusal_of,
    thinned,
)
from tests.patience import some

TARGET = StopCriterion(0.9, 10**6)
HISTORIES = st.dictionaries(
    st.integers(1, 5000), st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=900
)


def whole(history: dict[int, float]) -> list[MetricPoint]:
    return [MetricPoint(at, history[at]) for at in sorted(history)]


class TestMerging:
    @given(history=HISTORIES, seed=st.integers(0, 2**32))
    def test_is_independent_of_parts_order_and_repetition(
        self, history: dict[int, float], seed: int
    ) -> None:
        rng = random.Random(seed)  # noqa: S311 - the order of a test
        points = whole(history)
        parts: list[list[MetricPoint]] = [[] for _ in range(rng.randint(1, 6))]
        for point in points:
            rng.choice(parts).append(point)
        parts += rng.sample(parts, rng.randint(0, len(parts)))
        rng.shuffle(parts)
        kept: tuple[MetricPoint, ...] = ()
        for part in parts:
            # A process sends a thinned history, and sends earlier points again.
            kept = merge_evaluations(kept, thinned(part, TARGET), TARGET)
        assert kept == thinned(points, TARGET)
        assert merge_evaluations(kept, kept, TARGET) == kept

    @given(history=HISTORIES)
    def test_keeps_first_newest_and_target_meeting_point(self, history: dict[int, float]) -> None:
        points = whole(history)
        kept = thinned(points, TARGET)
        assert len(kept) <= HISTORY_MAX
        assert len(kept) >= min(len(points), HISTORY_MAX // 2 - 2) or len(points) < HISTORY_MAX
        assert set(kept) <= set(points)
        assert {kept[0], kept[-1]} == {points[0], points[-1]}
        met = [point for point in points if TARGET.is_met(point.metric)]
        assert met[:1] == [point for point in kept if TARGET.is_met(point.metric)][:1]

    @given(history=HISTORIES)
    @settings(max_examples=some())
    def test_matches_thinning_of_client(self, history: dict[int, float]) -> None:
        points = whole(history)
        said = thinned_by_client(
            [(at, metric) for at, metric in points], Criterion("accuracy", True, 0.9)
        )
        assert [MetricPoint(*one) for one in said] == list(thinned(points, TARGET))

    def test_thins_evenly(self) -> None:
        points = [MetricPoint(at, 0.1) for at in range(1, 100_001)]
        kept = thinned(points, TARGET)
        gaps = {b.iteration - a.iteration for a, b in pairwise(kept[1:-1])}
        assert gaps == {512}

    def test_keeps_first_of_two_points_at_same_iteration(self) -> None:
        before = [MetricPoint(5, 0.5)]
        kept = merge_evaluations(before, [MetricPoint(5, 0.7), MetricPoint(9, 0.6)], TARGET)
        assert kept == (MetricPoint(5, 0.5), MetricPoint(9, 0.6))

    def test_forecast_is_independent_of_order(self) -> None:
        # imported late, because scipy takes a third of a second
        from evenshare_core.estimation.curves import estimate_stop

        points = [MetricPoint(50 * n, 0.95 - 0.8 / (1 + n / 6)) for n in range(1, 25)]
        kept: tuple[MetricPoint, ...] = ()
        for part in (points[10:], points[:15], points[3:7], points):
            kept = merge_evaluations(kept, part, TARGET)
        assert estimate_stop(kept, TARGET) == estimate_stop(points, TARGET)


class TestReport:
    @pytest.mark.parametrize(
        ("points", "why"),
        [
            ([(0, 0.5)], "has iteration 0 after 0"),
            ([(-3, 0.5)], "has iteration -3 after 0"),
            ([(2, 0.5), (2, 0.5)], "has iteration 2 after 2"),
            ([(5, 0.5), (4, 0.5)], "has iteration 4 after 5"),
            ([(2**53, 0.5)], "has iteration 9007199254740992 after 0"),
            ([(1, float("nan"))], "has a metric at iteration 1"),
            ([(1, float("-inf"))], "has a metric at iteration 1"),
            ([(1, 1e308)], "has a metric at iteration 1"),
            ([(1, -float(METRIC_MOST))], "has a metric at iteration 1"),
        ],
    )
    def test_invalid_report_is_rejected_with_reason(self, points: Any, why: str) -> None:
        assert refusal_of([MetricPoint(*one) for one in points]).startswith(why)

    def test_valid_report_is_not_rejected(self) -> None:
        assert refusal_of([]) == ""
        assert refusal_of([MetricPoint(1, -1e11), MetricPoint(2**53 - 1, 0.0)]) == ""
