"""Corrects p50 and p90 of start estimates by what became of past ones.

A past estimate has a score at each level: how long its job waited / how long it was said to wait.
The factor of a level is the score that this share of past estimates stayed within; it multiplies
the wait of the next ones. That is split conformal prediction, with scores that may be censored:
a job that still waits, or that was cancelled, has a score above the one of its wait so far. To
leave these jobs out would make every factor too small, since long waits are the ones still open.
So the quantile is that of the Kaplan-Meier curve, with one more row that never starts.

| symbol | here | value |
|---|---|---|
| wait that was said | `PastEstimate.p50_us`, `p90_us`; a lease length at least | us |
| score | wait / wait that was said | ratio |
| group | p50 less than a lease length away, and the others | |
| factor of p50, p90 | quantile `P50`, `P90` of the group's scores | 0 to 10 |

Sources: Vovk, Gammerman and Shafer, 2005 (split conformal, by groups); Kaplan and Meier, 1958;
Candes, Lei and Ren, 2023 (censored times); Brevik, Nurmi and Wolski, 2006 (BMBP: bounds of queue
waits by order statistics of the past, chosen on the safe side).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

LEAST_PAST = 20  # estimates whose outcome is known, before p50 is corrected or p90 narrowed
PAST_MOST = 200  # of a group, the newest ones: a queue of last month says little of this one
MOST_FACTOR = 10.0
# Estimates of one look ahead err together, so that 200 are worth fewer, and a burst that is worse
# than those before is not in them. A p90 that is too early breaks its promise, one that is too late
# does not: so its factor is taken from above 0.9. At 0.95, 81 % of the starts of bursts held.
P50, P90 = 0.5, 0.97


class PastEstimate(NamedTuple):
    """One past estimate; all in us from the instant that it was made for.

    `p50_us`, `p90_us` are waits before correction. `wait_us`: until the job started; None if it
    had not when it was last seen waiting, after `seen_us`.
    """

    p50_us: int
    p90_us: int | None
    wait_us: int | None
    seen_us: int = 0

    @property
    def is_known(self) -> bool:
        """Whether it says more than that it is new: its job started, or p50 passed."""
        return self.wait_us is not None or self.seen_us >= self.p50_us


class Factors(NamedTuple):
    """By what waits are multiplied. `past`: past estimates with a known outcome behind it."""

    p50: float = 1.0
    p90: float = 1.0
    past: int = 0


class Correction(NamedTuple):
    """Factors where p50 is less than a lease length away, `short`, and elsewhere, `long`."""

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
    """Return the correction by past estimates, the newest first.

    A group with fewer than `LEAST_PAST` known outcomes takes the factors of all together. If
    these are too few as well, p50 stays as it is, and p90 is widened by the worst of them.
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
    """The score, and whether it is only known to be larger.

    A wait counts as a lease length at least: else waits that were to last a round, and lasted
    five, would widen the waits of hours by as much.
    """
    waited_us = row.seen_us if row.wait_us is None else row.wait_us
    return waited_us / max(1, said_us, lease_us), row.wait_us is None


def _quantile(scores: Sequence[tuple[float, bool]], level: float) -> float:
    """The score that this share stays within; if too few started, the largest, 1 at least."""
    share, left = 1.0, len(scores) + 1  # one more: the estimate that is corrected
    for score, is_censored in sorted(scores):  # of equal ones, starts first
        if not is_censored:
            share *= 1 - 1 / left
            if share <= 1 - level + 1e-9:
                return score
        left -= 1
    return max(1.0, max((score for score, _ in scores), default=1.0))
