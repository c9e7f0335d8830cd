"""Test that local jobs' metrics are read as untrusted text; virtual jobs report own values."""

from __future__ import annotations

import json
from statistics import mean, median
from typing import Any

import pytest

from evenshare_core.estimation.evaluations import HISTORY_MAX, MetricPoint, StopCriterion
from scheduling.engine.executors.base import Evaluations
from scheduling.engine.executors.local_evaluations import parse_evaluations
from scheduling.engine.executors.local_files import EVALUATIONS_BYTES
from scheduling.engine.executors.virtual_curves import evaluations_until

GOOD: dict[str, Any] = {"version": 1, "lease": 3, "metric": "loss", "points": [[5, 0.5], [9, 1]]}


def parsed(said: Any) -> Evaluations | None:
    return parse_evaluations(json.dumps(said).encode(), lease=3)


class TestEvaluationsFile:
    def test_is_parsed(self) -> None:
        assert parsed(GOOD) == Evaluations("loss", (MetricPoint(5, 0.5), MetricPoint(9, 1.0)))

    def test_of_other_lease_or_empty_is_none(self) -> None:
        assert parsed({**GOOD, "lease": 2}) is None
        assert parse_evaluations(b"", lease=3) is None

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            ([GOOD], "is not a JSON object of version 1"),
            ({**GOOD, "version": 2}, "is not a JSON object of version 1"),
            ({**GOOD, "lease": True}, "has no whole number in lease"),
            ({**GOOD, "metric": 5}, "has no text in metric"),
            ({**GOOD, "points": {}}, "has no list of at most 200 points"),
            ({**GOOD, "points": [[n, 0] for n in range(201)]}, "has no list of at most 200 points"),
            ({**GOOD, "points": [[1]]}, "has a point"),
            ({**GOOD, "points": [[1.5, 0]]}, "has a point"),
            ({**GOOD, "points": [[1, "0"]]}, "has a point"),
            ({**GOOD, "points": [[1, True]]}, "has a point"),
            ({**GOOD, "points": [[1, 10**400]]}, "has a point"),
            ({**GOOD, "points": [[-1, 0.5]]}, "has a point"),
        ],
    )
    def test_invalid_content_is_rejected_with_reason(self, said: Any, why: str) -> None:
        found = parsed(said)
        assert found is not None
        assert found.refused.startswith(why)
        assert found.points == ()

    @pytest.mark.parametrize("text", [b"{", b"\xff", b"[" * 9000, b"x" * (EVALUATIONS_BYTES + 1)])
    def test_invalid_or_overlong_json_is_rejected(self, text: bytes) -> None:
        found = parse_evaluations(text, lease=3)
        assert found is not None
        assert found.refused


class TestVirtualJob:
    @pytest.mark.parametrize("job", range(1, 13))
    @pytest.mark.parametrize("lower", [False, True])
    def test_meets_target_exactly_at_true_end(self, job: int, *, lower: bool) -> None:
        criterion = StopCriterion(0.5, 5000, lower_is_better=lower)
        points = evaluations_until(job, criterion, iterations=3100, done=3100)
        assert [one.iteration for one in points if criterion.is_met(one.metric)] == [3100]
        half = evaluations_until(job, criterion, iterations=3100, done=1550)
        assert points[: len(half)] == half
        assert len(points) <= HISTORY_MAX

    def test_running_to_cap_never_meets_target(self) -> None:
        criterion = StopCriterion(0.5, 3000)
        for iterations in (3000, 90_000):
            points = evaluations_until(4, criterion, iterations=iterations, done=iterations)
            assert not any(criterion.is_met(one.metric) for one in points)
            assert len(points) <= HISTORY_MAX

    def test_with_one_iteration_reports_one_evaluation(self) -> None:
        criterion = StopCriterion(0.5, 5000)
        assert len(evaluations_until(1, criterion, iterations=1, done=1)) == 1
        assert evaluations_until(1, criterion, iterations=1, done=0) == ()

    def test_stop_estimate_at_half_time_is_within_12_percent(self) -> None:
        # imported late, because scipy takes a third of a second
        from evenshare_core.estimation.curves import estimate_stop

        off = []
        for job in range(1, 25):
            criterion = StopCriterion(0.25 if job % 2 else 0.93, 4000 + 100 * job, job % 2 == 1)
            seen = evaluations_until(job, criterion, iterations=3000, done=1500)
            off.append(abs(estimate_stop(seen, criterion).iterations.amount / 3000 - 1))
        assert mean(off) < 0.12
        assert median(off) < 0.1
