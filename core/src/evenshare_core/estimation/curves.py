"""An estimate of how many iterations a job runs if it stops once its metric meets a target.

Source: UniSched III-B 2, after Domhan et al. 2015 (`evenshare_core.estimation.families`).

The estimate is an ensemble of curve families. Each family is fitted twice: to all points, and
without the first 30 %, because the early part of a curve says least about its end. A member's
weight is exp(-BIC / 8). BIC is the squared residuals over the noise, plus log N per parameter. A
fit that leaves out points is charged 1 for each of them, the expected cost of a point on a correct
curve, and `CHANGE` additional parameters. The usual weight is exp(-BIC / 2), but then one family
takes all the weight and the error band is too narrow. The noise is the smallest variance of any
fit. Domhan samples parameters at random. Here each member's error follows from its fit, in five
steps of a normal distribution, so the same points always give the same answer.

A job stops at the first evaluation that meets the target, and evaluations are noisy. P(stop by x)
is therefore one minus the product, over the evaluations up to x, of the chance that each misses the
target. The median is the estimate. It never exceeds the user's cap on iterations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log, sqrt

import numpy as np

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from evenshare_core.estimation.families import FAMILIES, CurveFit, Floats, fit_curve
from evenshare_core.estimation.optimiser import log_ndtr
from evenshare_core.estimation.values import Estimate, estimate_of

FEWEST_POINTS = 6
MOST_POINTS = 400  # more evaluations are averaged in groups
MOST_STEPS = 2000  # for longer forecasts, a step covers several evaluations
LATER_PART = 0.3
CHANGE = 3
TEMPER = 8.0
LOW, HIGH = 0.1, 0.9
_BAND = 2 * 1.2816  # standard deviations between LOW and HIGH
# Gauss-Hermite: five values of a standard normal, and their weights.
_NORMAL = ((-2.85697, 0.011257), (-1.355626, 0.222076), (0.0, 0.533333),
           (1.355626, 0.222076), (2.85697, 0.011257))  # fmt: skip # a table
_NEGLIGIBLE = 1e-4  # fraction of the largest weight; members with less are left out


@dataclass(frozen=True, slots=True)
class StopEstimate:
    """The number of iterations after which a job stops.

    `iterations`: the median. `low`, `high`: the job has stopped by then with a chance of 0.1 and
    0.9. All three are at most the cap. `steps`, `chances`: P(stop by iteration), without the cap.
    `members`: weights of the families. `note`: a sentence, if the estimate does not come from a
    curve.
    """

    iterations: Estimate
    low: int
    high: int
    steps: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    members: tuple[tuple[str, float], ...] = ()
    note: str = ""


def estimate_stop(points: Sequence[MetricPoint], criterion: StopCriterion) -> StopEstimate:
    """Estimate after how many iterations the metric meets the criterion.

    Raises:
        ValueError: iterations do not ascend from 1, or a metric is not finite.
    """
    _check_points(points)
    cap = criterion.cap
    for point in points:
        if criterion.is_met(point.metric):
            reached = min(point.iteration, cap)
            return StopEstimate(
                Estimate(reached, 0, EstimateSource.MEASURED), reached, reached,
                (reached,), (1.0,), note="the target was met",
            )  # fmt: skip # rows of what belongs together
    if len(points) < FEWEST_POINTS:
        note = f"the cap: {len(points)} evaluations are too few, {FEWEST_POINTS} are needed"
        return _at_cap(cap, points, note)
    if points[-1].iteration >= cap:
        return _at_cap(cap, points, "the cap was reached")
    return _from_curves(points, criterion)


def _check_points(points: Sequence[MetricPoint]) -> None:
    last = 0
    for point in points:
        if point.iteration <= last:
            raise ValueError(
                f"iteration: {point.iteration} comes after {last}; give them ascending"
            )
        if not isfinite(point.metric):
            raise ValueError(f"metric: at iteration {point.iteration} it is not a finite number")
        last = point.iteration


def _at_cap(cap: int, points: Sequence[MetricPoint], note: str) -> StopEstimate:
    """Return the cap with unknown error; its lower bound is the number of iterations so far."""
    low = min(cap, points[-1].iteration) if points else 0
    return StopEstimate(estimate_of(cap, cap - low, EstimateSource.CAP), low, cap, note=note)


@dataclass(frozen=True, slots=True)
class _Member:
    fit: CurveFit
    weight: float


def _from_curves(points: Sequence[MetricPoint], criterion: StopCriterion) -> StopEstimate:
    sign = -1 if criterion.lower_is_better else 1
    iterations = np.array([point.iteration for point in points], dtype=np.float64)
    metrics = sign * np.array([point.metric for point in points], dtype=np.float64)
    every = float(np.median(np.diff(iterations, prepend=0.0)))
    group = -(-len(points) // MOST_POINTS)
    x, y = _grouped(iterations, group) / every, _grouped(metrics, group)
    members, variance = _members(x, y, sign)
    noise = sqrt(variance * group)

    steps, several = _steps_ahead(float(iterations[-1]), criterion.cap, every)
    chances = np.zeros(len(steps))
    for member in members:
        middle, spread = _predicted(member.fit, steps / every, sign, variance)
        for distance, weight in _NORMAL:
            short = (sign * criterion.target - middle - distance * spread) / noise
            missed = np.cumsum(several * log_ndtr(short))
            chances += member.weight * weight * (1 - np.exp(missed))
    return _summary(steps, chances, members, criterion.cap)


def _grouped(values: Floats, group: int) -> Floats:
    """Return averages of `group` values each; if some are left over, the first are dropped."""
    if group == 1:
        return values
    whole: Floats = values[len(values) % group :].reshape(-1, group).mean(axis=1)
    return whole


def _members(x: Floats, y: Floats, sign: int) -> tuple[list[_Member], float]:
    """Return families with weights that sum to 1, and the variance of a point around its curve."""
    fits = [
        (fit_curve(family, x[first:], y[first:], sign), first)
        for first in sorted({0, int(LATER_PART * len(x))})
        for family in FAMILIES
        if len(x) - first > family.parameters() + 1
    ]
    least = (1e-9 * (float(np.ptp(y)) or 1.0)) ** 2
    variance = max(least, min(fit.variance for fit, _ in fits))
    scores = np.array([_score(fit, first, variance, len(x)) for fit, first in fits])
    weights = np.exp(-(scores - scores.min()) / TEMPER)
    weights = np.where(weights > _NEGLIGIBLE, weights, 0.0)
    weights = weights / weights.sum()
    members = [
        _Member(fit, weight)
        for (fit, _), weight in zip(fits, weights.tolist(), strict=True)
        if weight
    ]
    return members, variance


def _score(fit: CurveFit, first: int, variance: float, count: int) -> float:
    """Return the BIC over `count` points, the first `first` of which the fit leaves out."""
    parameters = fit.family.parameters() + (CHANGE if first else 0)
    return fit.squares / variance + first + parameters * log(count)


def _steps_ahead(last: float, cap: int, every: float) -> tuple[Floats, float]:
    """Return the iterations of evaluations up to the cap, and the evaluations per step."""
    count = max(1, int((cap - last) // every))
    several = -(-count // MOST_STEPS)
    steps = last + every * several * np.arange(1, count // several + 1, dtype=np.float64)
    return steps, float(several)


def _predicted(fit: CurveFit, x: Floats, sign: int, variance: float) -> tuple[Floats, Floats]:
    """Return a member's curve at x and its standard error, from the slopes of its parameters."""
    middle = fit.family.values(fit.parameters, x, sign)
    slopes = []
    for place, value in enumerate(fit.parameters):
        change = 1e-5 * max(1.0, abs(value))
        moved = fit.parameters.copy()
        moved[place] += change
        slopes.append((fit.family.values(moved, x, sign) - middle) / change)
    slope = np.array(slopes)
    covariance = fit.covariance * max(variance, fit.variance)
    square: Floats = np.einsum("ix,ij,jx->x", slope, covariance, slope)
    return middle, np.sqrt(np.maximum(0.0, square))


def _summary(steps: Floats, chances: Floats, members: Sequence[_Member], cap: int) -> StopEstimate:
    middle, low, high = (_step_at(steps, chances, chance, cap) for chance in (0.5, LOW, HIGH))
    reached = middle < cap or (chances[-1] >= 0.5 and steps[-1] <= cap)
    source = EstimateSource.FITTED if reached else EstimateSource.CAP
    families: dict[str, float] = {}
    for member in members:
        name = member.fit.family.name
        families[name] = families.get(name, 0.0) + member.weight
    note = "" if reached else f"the cap: the target is met before it with chance {chances[-1]:.2f}"
    return StopEstimate(
        estimate_of(middle, (high - low) / _BAND, source),
        low,
        high,
        tuple(ceil(step) for step in steps.tolist()),
        tuple(chances.tolist()),
        tuple(sorted(families.items(), key=lambda row: (-row[1], row[0]))),
        note,
    )


def _step_at(steps: Floats, chances: Floats, chance: float, cap: int) -> int:
    """Return the first step by which the job has stopped with this chance, or the cap."""
    place = int(np.searchsorted(chances, chance))
    return min(cap, ceil(steps[place])) if place < len(steps) else cap
