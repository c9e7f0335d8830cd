"""Expected interruptions of a job, equation (3) in closed form, and durations of earlier runs.

| paper | here | unit |
|---|---|---|
| n, m | `leases`, `until_deadline` | leases of work; leases to the deadline |
| T^sr (3) | `expected_interruptions`, times the cost of one | interruptions |

(3) sums k C(n-1, k) C(m-n+1, k+1) / C(m, n), which is (n - 1) (m - n) / m. The count plus one is
hypergeometric: n draws from m, of which m - n + 1 are marked. Its variance is part of the error.

As printed, (3) is circular: its n comes from T^dur (1), which contains T^sr. Here n is the number
of leases for the work only, without interruptions.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt
from statistics import median

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.values import Estimate, estimate_of
from evenshare_core.units import ONE_MILLI

# The error if there is only one earlier run: it does not show how much runs differ.
ALONE_ERROR_MILLI = ONE_MILLI
# The minimum error: the next run may differ by this much, however similar earlier runs were.
HISTORY_ERROR = 0.05
_MAD_TO_DEVIATION = 1.4826


def expected_interruptions(leases: int, until_deadline: int) -> Fraction:
    """Return (n - 1) (m - n) / m, or 0 if no work is left or the deadline cannot be met (m < n).

    Raises:
        ValueError: the number of leases of work is negative.
    """
    _check_leases(leases)
    if leases < 1 or until_deadline < leases:
        return Fraction(0)
    return Fraction((leases - 1) * (until_deadline - leases), until_deadline)


def interruption_variance(leases: int, until_deadline: int) -> Fraction:
    """Return the variance of the interruptions, n (n - 1) (m - n) (m - n + 1) / (m^2 (m - 1)).

    Raises:
        ValueError: the number of leases of work is negative.
    """
    _check_leases(leases)
    n, m = leases, until_deadline
    if n < 1 or m < n or m < 2:
        return Fraction(0)
    return Fraction(n * (n - 1) * (m - n) * (m - n + 1), m * m * (m - 1))


def history_estimate(amounts: Sequence[int]) -> Estimate:
    """Return the median of what earlier runs of the same job took, with the error for one more run.

    The error comes from the median absolute deviation.

    Raises:
        ValueError: there is no run, or an amount is negative.
    """
    if not amounts or min(amounts) < 0:
        raise ValueError("amounts: give at least one run, none of them negative")
    middle = median(amounts)
    if len(amounts) == 1:
        return Estimate(round(middle), ALONE_ERROR_MILLI if middle else 0, EstimateSource.HISTORY)
    distance = _MAD_TO_DEVIATION * median(abs(amount - middle) for amount in amounts)
    distance = max(distance, HISTORY_ERROR * middle)
    return estimate_of(middle, distance * sqrt(1 + 1 / len(amounts)), EstimateSource.HISTORY)


def _check_leases(leases: int) -> None:
    if leases < 0:
        raise ValueError("leases: must be at least 0")
