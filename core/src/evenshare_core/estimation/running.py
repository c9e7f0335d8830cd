"""Averages of what a job reports while it runs, which notice when its speed changes.

Exponentially weighted: the first `WINDOW` reports are averaged evenly, later ones by 1 / `WINDOW`.
The spread goes the same way (West 1979). A change is seen by two cumulative sums, of what is above
the average and of what is below (Page 1954): each adds a report's distance in standard deviations
less `SLACK_MILLI`, and falls to 0 at least. Above `LIMIT_MILLI` the average begins anew, from the
reports since that sum was last 0. A single report counts for `MOST_MILLI` at most, so one that is
late is no change: three are needed. With these settings a speed that does not change is called
changed about once in 10,000 reports, if they are normal (Siegmund's approximation).

All is whole numbers, so that the stored state is the same bytes everywhere.
"""

from __future__ import annotations

from math import isqrt, sqrt

from msgspec.structs import replace

from evenshare_core.domain.values import Value
from evenshare_core.estimation.values import Estimate, EstimateSource, estimate_of
from evenshare_core.units import MICROSECOND_NS, ONE_MILLI

WINDOW = 64
WARM_UP = 8
SLACK_MILLI = ONE_MILLI // 2
LIMIT_MILLI = 8 * ONE_MILLI
MOST_MILLI = 4 * ONE_MILLI
# Reports that are all alike still spread by a hundredth, else the first other one is a change.
LEAST_SPREAD = 100


class CumulativeSum(Value, frozen=True, array_like=True):
    """One side: its sum, and the reports since it was last 0."""

    score_milli: int = 0
    count: int = 0
    sum_ns: int = 0
    since_us: int = 0


class RunningAverage(Value, frozen=True, array_like=True):
    """An average of times, in nanoseconds so that rounding does not gather.

    `count`: reports since the last change. `iterations`: those that the reports were about.
    `spread_ns`: the standard deviation of a report. `last_us`: when the last one came.
    `changes`, `changed_us`: how often it changed, and from which report on it last did; 0: never.
    """

    count: int = 0
    iterations: int = 0
    mean_ns: int = 0
    spread_ns: int = 0
    last_us: int = 0
    changes: int = 0
    changed_us: int = 0
    above: CumulativeSum = CumulativeSum()
    below: CumulativeSum = CumulativeSum()

    def estimate(self) -> Estimate:
        """Return the average in microseconds, with the standard error of the mean.

        Raises:
            ValueError: nothing was reported.
        """
        if not self.count:
            raise ValueError("count: nothing was reported yet")
        # Weights 1/W, (1 - 1/W)/W, ... are those of 2 W - 1 equal ones once it is long.
        alike = self.count if self.count <= WINDOW else min(self.count, 2 * WINDOW - 1)
        spread_us = _spread_ns(self) / MICROSECOND_NS
        mean_us = self.mean_ns / MICROSECOND_NS
        return estimate_of(mean_us, spread_us / sqrt(alike), EstimateSource.MEASURED)


def observe(
    state: RunningAverage, time_us: int, *, at_us: int, iterations: int = 1
) -> RunningAverage:
    """Return the average with one more report: `time_us`, the mean over `iterations`.

    Raises:
        ValueError: no time, no iteration, or it is from before the last report.
    """
    if time_us < 1 or iterations < 1:
        raise ValueError("time_us, iterations: must be at least 1")
    if state.count and at_us < state.last_us:
        raise ValueError(f"at_us: is before the last report, {state.last_us}; report in order")
    time_ns = time_us * MICROSECOND_NS
    seen = replace(state, iterations=state.iterations + iterations, last_us=at_us)
    if state.count < WARM_UP:
        return _averaged(seen, time_ns)
    spread_ns = _spread_ns(state)
    score = _divided(ONE_MILLI * (time_ns - state.mean_ns), spread_ns)
    score = max(-MOST_MILLI, min(MOST_MILLI, score))
    above = _added(state.above, score, time_ns, at_us)
    below = _added(state.below, -score, time_ns, at_us)
    for side in (above, below):
        if side.score_milli > LIMIT_MILLI:
            return _begun_anew(seen, side)
    limited_ns = state.mean_ns + _divided(score * spread_ns, ONE_MILLI)
    return replace(_averaged(seen, limited_ns), above=above, below=below)


def _averaged(state: RunningAverage, time_ns: int) -> RunningAverage:
    share = min(state.count + 1, WINDOW)
    distance = time_ns - state.mean_ns if state.count else 0
    mean_ns = state.mean_ns + _divided(distance, share) if state.count else time_ns
    square = (share - 1) * (share * state.spread_ns**2 + distance**2) // share**2
    return replace(state, count=state.count + 1, mean_ns=mean_ns, spread_ns=isqrt(square))


def _spread_ns(state: RunningAverage) -> int:
    return max(state.spread_ns, state.mean_ns // LEAST_SPREAD, 1)


def _added(side: CumulativeSum, score: int, time_ns: int, at_us: int) -> CumulativeSum:
    total = side.score_milli + score - SLACK_MILLI
    if total <= 0:
        return CumulativeSum()
    since_us = side.since_us if side.count else at_us
    return CumulativeSum(total, side.count + 1, side.sum_ns + time_ns, since_us)


def _begun_anew(state: RunningAverage, side: CumulativeSum) -> RunningAverage:
    """The average of the reports that told the change; their spread is not known yet."""
    return RunningAverage(
        count=side.count, iterations=state.iterations,
        mean_ns=_divided(side.sum_ns, side.count), spread_ns=state.spread_ns,
        last_us=state.last_us, changes=state.changes + 1, changed_us=side.since_us,
    )  # fmt: skip


def _divided(number: int, by: int) -> int:
    """The nearest whole number, halves up."""
    return (2 * number + by) // (2 * by)
