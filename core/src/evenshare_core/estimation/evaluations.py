"""Evaluations of a job's metric: which of them are kept, and when they meet the stop criterion.

Iterations are divided into stretches of equal width. Three kinds of evaluations are kept: the first
of each stretch, the newest, and the first that met the target. The width is a power of two that
follows from the newest iteration. The first of a wide stretch is therefore also the first of a
narrow one. The result is the same in whatever batches and order evaluations arrive, and however
often. At most `HISTORY_MAX` are kept, and at least half of that if there were enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from evenshare_core.domain.reason_texts import NO_ASCENT, NO_METRIC

HISTORY_MAX = 200
# The largest target of a criterion (`Job.stop_value`); its square is still a finite float.
METRIC_MOST = 10**12
ITERATION_MOST = 2**53


class MetricPoint(NamedTuple):
    """A metric, evaluated after a number of iterations."""

    iteration: int
    metric: float


@dataclass(frozen=True, slots=True)
class StopCriterion:
    """The metric to reach, and the user's cap on iterations."""

    target: float
    cap: int
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        """Validate the criterion.

        Raises:
            ValueError: the target is not finite, or the cap is below 1.
        """
        if not isfinite(self.target):
            raise ValueError("target: must be a finite number")
        if self.cap < 1:
            raise ValueError("cap: must be at least 1 iteration; every job needs one")

    def is_met(self, metric: float) -> bool:
        """Return whether a metric meets the target."""
        return metric <= self.target if self.lower_is_better else metric >= self.target


def refusal_of(points: Sequence[MetricPoint]) -> str:
    """Return why the evaluations of one report cannot be used, or "" if they can.

    Iterations must ascend from 1. Metrics must be finite and within the bounds of a criterion.
    """
    last = 0
    for iteration, metric in points:
        if not last < iteration < ITERATION_MOST:
            return NO_ASCENT.format(iteration=iteration, last=last)
        if not (isfinite(metric) and abs(metric) < METRIC_MOST):
            return NO_METRIC.format(iteration=iteration)
        last = iteration
    return ""


def merge_evaluations(
    before: Iterable[MetricPoint], reported: Iterable[MetricPoint], criterion: StopCriterion
) -> tuple[MetricPoint, ...]:
    """Return the evaluations to keep, ordered by iteration; at most `HISTORY_MAX`.

    A job repeats iterations after a preemption. Of two evaluations of the same iteration, that of
    `before` is kept.
    """
    known = dict(reported) | dict(before)
    points = [MetricPoint(iteration, known[iteration]) for iteration in sorted(known)]
    return thinned(points, criterion)


def thinned(points: Sequence[MetricPoint], criterion: StopCriterion) -> tuple[MetricPoint, ...]:
    """Return the evaluations to keep, at most `HISTORY_MAX`, by the rule of the module."""
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
    """Return the first evaluation of each stretch of `width` iterations."""
    kept: list[MetricPoint] = []
    for point in points:
        if not kept or point.iteration // width != kept[-1].iteration // width:
            kept.append(point)
    return kept
