"""Evaluations that a job reports of its metric: what is kept of them, and when it has met its end.

What is kept depends on the evaluations alone, not on how many came at once, in which order or how
often: of each stretch of iterations the first one, the newest of all, and the first that met the
target. How wide stretches are follows from the newest iteration: a power of two, so that the first
of a wide stretch is the first of a narrow one, and a part that was thinned before gives the same
as the whole. `HISTORY_MAX` at most are kept; fewer than half of that only where there were no more.
Source: docs/adr/0192-curves-of-live-jobs.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

HISTORY_MAX = 200
# What a criterion can name (`Job.stop_value`); squares of it are numbers still.
METRIC_MOST = 10**12
ITERATION_MOST = 2**53


class MetricPoint(NamedTuple):
    """What an evaluation after so many iterations gave."""

    iteration: int
    metric: float


@dataclass(frozen=True, slots=True)
class StopCriterion:
    """The metric to reach, and the user's cap on iterations, which always holds."""

    target: float
    cap: int
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            ValueError: the target is no number, or the cap below 1.
        """
        if not isfinite(self.target):
            raise ValueError("target: must be a finite number")
        if self.cap < 1:
            raise ValueError("cap: must be at least 1 iteration; every job needs one")

    def is_met(self, metric: float) -> bool:
        """Say whether an evaluation ends the job."""
        return metric <= self.target if self.lower_is_better else metric >= self.target


def refusal_of(points: Sequence[MetricPoint]) -> str:
    """Why evaluations of one report cannot be used; empty: they can.

    Iterations ascend from 1, metrics are finite and no more than a criterion can name.
    """
    last = 0
    for iteration, metric in points:
        if not last < iteration < ITERATION_MOST:
            return f"has iteration {iteration} after {last}; they ascend from 1"
        if not (isfinite(metric) and abs(metric) < METRIC_MOST):
            return f"has a metric at iteration {iteration} that is no number below 10^12"
        last = iteration
    return ""


def merge_evaluations(
    before: Iterable[MetricPoint], reported: Iterable[MetricPoint], criterion: StopCriterion
) -> tuple[MetricPoint, ...]:
    """Return what is kept of evaluations, by iteration; at most `HISTORY_MAX`.

    Of two at the same iteration that of `before` stays: after a preemption it is made once more.
    """
    known = dict(reported) | dict(before)
    points = [MetricPoint(iteration, known[iteration]) for iteration in sorted(known)]
    return thinned(points, criterion)


def thinned(points: Sequence[MetricPoint], criterion: StopCriterion) -> tuple[MetricPoint, ...]:
    """Return at most `HISTORY_MAX` of ascending evaluations, as the module says."""
    if not points:
        return ()
    width = 1
    while points[-1].iteration // width + 1 > HISTORY_MAX - 2:
        width *= 2
    firsts = _firsts(points, width)
    met = next((point for point in points if criterion.is_met(point.metric)), None)
    kept = {*firsts, points[-1], *([met] if met is not None else [])}
    return tuple(sorted(kept))


def _firsts(points: Sequence[MetricPoint], width: int) -> list[MetricPoint]:
    """The first evaluation of each stretch of so many iterations."""
    kept: list[MetricPoint] = []
    for point in points:
        if not kept or point.iteration // width != kept[-1].iteration // width:
            kept.append(point)
    return kept
