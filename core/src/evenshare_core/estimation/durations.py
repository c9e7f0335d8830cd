"""How often a job is interrupted, equation (3) in closed form, and how long earlier runs took.

| paper | here | unit |
|---|---|---|
| n, m | `leases`, `until_deadline` | leases of work; leases to the deadline |
| T^sr (3) | `expected_interruptions`, times what each costs | interruptions |

(3) sums k C(n-1, k) C(m-n+1, k+1) / C(m, n), which is (n - 1) (m - n) / m. One more than the count
is hypergeometric: n of m, m - n + 1 of them marked. Its variance is part of the error.

(3) is circular as printed, since n is of T^dur (1), which has T^sr in it: n is of the work alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt
from statistics import median

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.values import Estimate, estimate_of
from evenshare_core.units import ONE_MILLI

# One earlier run says nothing about how runs differ.
ALONE_ERROR_MILLI = ONE_MILLI
# However alike earlier runs were, the next is taken to differ by so much.
HISTORY_ERROR = 0.05
_MAD_TO_DEVIATION = 1.4826


def expected_interruptions(leases: int, until_deadline: int) -> Fraction:
    """Return (n - 1) (m - n) / m; 0 where the deadline cannot be met (m < n) or nothing is left.

    Raises:
        ValueError: a negative number of leases of work.
    """
    _check_leases(leases)
    if leases < 1 or until_deadline < leases:
        return Fraction(0)
    return Fraction((leases - 1) * (until_deadline - leases), until_deadline)


def interruption_variance(leases: int, until_deadline: int) -> Fraction:
    """Return the variance of that count, n (n - 1) (m - n) (m - n + 1) / (m^2 (m - 1)).

    Raises:
        ValueError: a negative number of leases of work.
    """
    _check_leases(leases)
    n, m = leases, until_deadline
    if n < 1 or m < n or m < 2:
        return Fraction(0)
    return Fraction(n * (n - 1) * (m - n) * (m - n + 1), m * m * (m - 1))


def history_estimate(amounts: Sequence[int]) -> Estimate:
    """Return the median of what earlier runs of the same job took, and how far the next may be.

    The error is that of one more run, by the median of distances from the median.

    Raises:
        ValueError: no run, or a negative amount.
    """
    if not amounts or min(amounts) < 0:
        raise ValueError("amounts: give one run at least, none of them negative")
    middle = median(amounts)
    if len(amounts) == 1:
        return Estimate(round(middle), ALONE_ERROR_MILLI if middle else 0, EstimateSource.HISTORY)
    distance = _MAD_TO_DEVIATION * median(abs(amount - middle) for amount in amounts)
    distance = max(distance, HISTORY_ERROR * middle)
    return estimate_of(middle, distance * sqrt(1 + 1 / len(amounts)), EstimateSource.HISTORY)


def _check_leases(leases: int) -> None:
    if leases < 0:
        raise ValueError("leases: must be at least 0")
