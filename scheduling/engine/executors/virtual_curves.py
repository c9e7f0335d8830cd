"""The true learning curves of virtual jobs, which no snapshot can read.

A job with a stopping metric evaluates it about a hundred times until its cap, after equal numbers
of iterations, and at its end. The curve, the number of evaluations and the noise are drawn from its
id only. The metric meets its target only at the job's true end, at `VirtualWork.duration_us` if
this is before the cap. A job that runs to its cap ends without meeting the target.
"""

import random
from collections.abc import Callable
from math import exp
from typing import NamedTuple

from evenshare_core.estimation.evaluations import HISTORY_MAX, MetricPoint, StopCriterion

# The minimum and maximum number of evaluations of a job until its cap.
LOOKS = (60, 120)
# The noise, and how far the last value exceeds the target, as fractions of the distance from the
# first metric to the target.
NOISE, BEYOND = 0.004, 0.001
# The curve of a job that its cap ends would meet the target after this many times its iterations.
SHORT = 1.3

# A function from the fraction of the iterations that are done (0 to 1) to the metric's progress (0
# to 1).
Rise = Callable[[float], float]


class TrueCurve(NamedTuple):
    """A job's metric: from `first` at its start to `target` after `ends_at` iterations."""

    rise: Rise
    first: float
    target: float
    ends_at: float
    every: int


def curve_of(job: int, criterion: StopCriterion, iterations: int) -> TrueCurve:
    """Return the curve of a job that truly runs for `iterations`."""
    rng = random.Random(job)  # noqa: S311 - a workload, not a secret
    every = max(1, criterion.cap // rng.randint(*LOOKS))
    steepness = rng.uniform(2.0, 3.5)
    rise = rng.choice((_exponential, _hill))(steepness)
    scale = abs(criterion.target) or 1.0
    if criterion.lower_is_better:
        first = criterion.target + scale * rng.uniform(3.0, 9.0)
    else:
        first = criterion.target - scale * rng.uniform(0.6, 0.9)
    ends_at = iterations if iterations < criterion.cap else SHORT * iterations
    return TrueCurve(rise, first, criterion.target, max(1.0, ends_at), every)


def evaluations_until(
    job: int, criterion: StopCriterion, *, iterations: int, done: int
) -> tuple[MetricPoint, ...]:
    """Return a job's evaluations after `done` of its true `iterations`."""
    curve = curve_of(job, criterion, iterations)
    places = list(range(curve.every, min(done, iterations) + 1, curve.every))[: HISTORY_MAX - 1]
    if done >= iterations and places[-1:] != [iterations]:
        places.append(iterations)
    return tuple(MetricPoint(place, _metric(job, curve, place)) for place in places)


def _metric(job: int, curve: TrueCurve, place: int) -> float:
    """Return a metric with noise; it does not reach the target before the end."""
    way = curve.target - curve.first
    if place >= curve.ends_at:
        return curve.target + BEYOND * way
    noise = random.Random(f"{job}/{place}").gauss(0, NOISE)  # noqa: S311 - as above
    come = curve.rise(place / curve.ends_at) + noise
    # Mirror a value beyond the target, so that it falls short of the target.
    return curve.first + way * min(come, 2 - come - BEYOND)


def _exponential(steepness: float) -> Rise:
    whole = 1 - exp(-steepness)
    return lambda part: (1 - exp(-steepness * part)) / whole


def _hill(steepness: float) -> Rise:
    return lambda part: part * (1 + steepness) / (1 + steepness * part)
