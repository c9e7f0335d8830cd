"""How long a job takes: equations (1) and (3), with interruptions in closed form.

| paper | here | unit |
|---|---|---|
| T^dur (1) | `DurationEstimate.total` | microseconds |
| N^iter, T^iter | `iterations`, `iteration_us` | iterations left; microseconds each |
| t^sr | `overhead_us` | microseconds lost when it is suspended and resumed once |
| n, m | `DurationEstimate.leases`, `leases_until` | leases of work; leases to the deadline |
| T^sr (3) | `DurationEstimate.interrupted` | microseconds |

(3) sums k C(n-1, k) C(m-n+1, k+1) / C(m, n), which is (n - 1) (m - n) / m. One more than the count
is hypergeometric: n of m, m - n + 1 of them marked. Its variance is part of the error. A job of
best effort is interrupted with chance one half at each lease.

(3) is circular as printed, since n is of T^dur, which has T^sr in it: n is of the work alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from statistics import median

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.values import Estimate, estimate_of, least_sure, product
from evenshare_core.units import ONE_MILLI

# One earlier run says nothing about how runs differ.
ALONE_ERROR_MILLI = ONE_MILLI
# However alike earlier runs were, the next is taken to differ by so much.
HISTORY_ERROR = 0.05
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """A job's duration in microseconds: work, and what interruptions lose, on one deadline."""

    total: Estimate
    work: Estimate
    interrupted: Estimate
    leases: int


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


def lease_count(work_us: int, lease_us: int) -> int:
    """Return n, the leases that so much work takes.

    Raises:
        ValueError: the lease has no length.
    """
    _check_length(lease_us)
    return -(-work_us // lease_us)


def leases_until(deadline_us: int, lease_us: int) -> int:
    """Return m, the whole leases until a deadline so far from now; 0 when it is over.

    Raises:
        ValueError: the lease has no length.
    """
    _check_length(lease_us)
    return max(0, deadline_us // lease_us)


def estimate_duration(
    iterations: Estimate,
    iteration_us: Estimate,
    overhead_us: Estimate,
    *,
    lease_us: int,
    deadline_us: int | None,
) -> DurationEstimate:
    """Return (1) for a job with so many iterations left, and a deadline so far from now.

    `deadline_us` None: best-effort, n / 2 interruptions.

    Raises:
        ValueError: the lease has no length.
    """
    work = product(iterations, iteration_us)
    leases = lease_count(work.amount, lease_us)
    if deadline_us is None:
        count, variance = Fraction(leases, 2), Fraction(leases, 4)
    else:
        until = leases_until(deadline_us, lease_us)
        count = expected_interruptions(leases, until)
        variance = interruption_variance(leases, until)
    lost = float(count * overhead_us.amount)
    chance = sqrt(variance) * overhead_us.amount
    lost_deviation = sqrt(float(count * overhead_us.deviation) ** 2 + chance**2)
    sources = (work.source, overhead_us.source) if count else (work.source,)
    interrupted = estimate_of(lost, lost_deviation, overhead_us.source)
    deviation = sqrt(work.deviation**2 + lost_deviation**2)
    total = estimate_of(work.amount + lost, deviation, least_sure(sources))
    return DurationEstimate(total, work, interrupted, leases)


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


def _check_length(lease_us: int) -> None:
    if lease_us < 1:
        raise ValueError("lease_us: must be at least 1 microsecond")
