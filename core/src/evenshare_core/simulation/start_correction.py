"""Corrects p50 and p90 of start estimates with the outcomes of past estimates.

A past estimate has one score for p50 and one for p90: actual wait / estimated wait. Each factor is
a quantile of these scores, and multiplies the next estimated waits. This is split conformal
prediction, with scores that may be censored.

If a job still waits or was cancelled, only a lower bound of its score is known, from its wait so
far. Without such jobs every factor would be too small, because the waits that have not ended are
the long ones. The quantile is therefore that of the Kaplan-Meier curve, with one more row that
never starts.

| symbol | here | value |
|---|---|---|
| estimated wait | `PastEstimate.p50_us`, `p90_us`; at least a lease length | us |
| score | actual wait / estimated wait | ratio |
| group | estimates with a p50 less than a lease length away, and the others | |
| factor of p50, p90 | quantile `P50`, `P90` of the group's scores | 0 to 10 |

Sources: Vovk, Gammerman and Shafer, 2005 (split conformal, by groups). Kaplan and Meier, 1958.
Candes, Lei and Ren, 2023 (censored times). Brevik, Nurmi and Wolski, 2006 (BMBP: bounds of queue
waits by order statistics of the past, chosen on the safe side).
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

LEAST_PAST = 20  # known outcomes needed to correct p50 or to narrow p90.
# Only the newest estimates of a group are used: last month's queue says little about today's.
PAST_MOST = 200
MOST_FACTOR = 10.0
# Estimates of one forecast share an error, so 200 of them count as fewer independent estimates.
# Past estimates also cannot foresee unprecedented bursts. Only a p90 that is too early breaks its
# promise, so its level is above 0.9. At a level of 0.95, only 81 % of the starts in bursts were in
# time.
P50, P90 = 0.5, 0.97


class PastEstimate(NamedTuple):
    """A past estimate. Times are in us after the time of its forecast.

    `p50_us` and `p90_us` are waits before correction. `wait_us` is the wait until the start, or
    None if the job had not started by `seen_us`.
    """

    p50_us: int
    p90_us: int | None
    wait_us: int | None
    seen_us: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the outcome is informative: the job started, or p50 has passed."""
        return self.wait_us is not None or self.seen_us >= self.p50_us


class Factors(NamedTuple):
    """Factors of estimated waits; `past` is the number of past estimates with a known outcome."""

    p50: float = 1.0
    p90: float = 1.0
    past: int = 0


class Correction(NamedTuple):
    """Factors: `short` for estimates with a p50 less than a lease length away, else `long`."""

    lease_us: int = 0
    short: Factors = Factors()
    long: Factors = Factors()

    def corrected(self, p50_us: int, p90_us: int | None) -> tuple[int, int | None]:
        """Return the corrected waits of p50 and p90; p90 is never before p50."""
        factors = self.short if p50_us < self.lease_us else self.long
        first_us = self._times(p50_us, factors.p50)
        if p90_us is None:
            return first_us, None
        return first_us, max(first_us, self._times(p90_us, factors.p90))

    def _times(self, wait_us: int, factor: float) -> int:
        return wait_us if factor == 1 else ceil(max(wait_us, self.lease_us) * factor)


def correction_by(past: Sequence[PastEstimate], lease_us: int) -> Correction:
    """Return the correction that follows from past estimates, which are sorted newest first.

    A group with fewer than `LEAST_PAST` known outcomes gets the factors of all estimates together.
    If these also have too few known outcomes, p50 is unchanged, and p90 is multiplied by the
    largest score, at least 1.
    """
    everything = _factors(past[:PAST_MOST], lease_us)
    groups = []
    for is_short in (True, False):
        rows = [row for row in past if (row.p50_us < lease_us) == is_short][:PAST_MOST]
        is_enough = sum(row.is_known for row in rows) >= LEAST_PAST
        groups.append(_factors(rows, lease_us) if is_enough else everything)
    return Correction(lease_us, *groups)


def _factors(past: Sequence[PastEstimate], lease_us: int) -> Factors:
    known = sum(row.is_known for row in past)
    p50s = [_score(row, row.p50_us, lease_us) for row in past]
    p90s = [_score(row, row.p90_us, lease_us) for row in past if row.p90_us is not None]
    if known < LEAST_PAST:
        worst = max((score for score, _ in p90s), default=1.0)
        return Factors(1.0, min(MOST_FACTOR, max(1.0, worst)), known)
    p50, p90 = _quantile(p50s, P50), _quantile(p90s, P90)
    return Factors(min(MOST_FACTOR, p50), min(MOST_FACTOR, p90), known)


def _score(row: PastEstimate, said_us: int, lease_us: int) -> tuple[float, bool]:
    """Return the score, and whether it is only a lower bound.

    An estimated wait counts as at least one lease length. Otherwise a wait of five rounds that was
    estimated as one round would multiply estimates of hours by five.
    """
    waited_us = row.seen_us if row.wait_us is None else row.wait_us
    return waited_us / max(1, said_us, lease_us), row.wait_us is None


def _quantile(scores: Sequence[tuple[float, bool]], level: float) -> float:
    """Return the quantile of the scores at `level`.

    If too few jobs started, return the largest score, but at least 1.
    """
    share, left = 1.0, len(scores) + 1  # one more score, for the estimate to correct
    for score, is_censored in sorted(scores):  # at equal scores, starts come before censored ones
        if not is_censored:
            share *= 1 - 1 / left
            if share <= 1 - level + 1e-9:
                return score
        left -= 1
    return max(1.0, max((score for score, _ in scores), default=1.0))
