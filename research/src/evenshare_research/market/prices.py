"""Prices of equation (8), and their parameter theta.

| paper | here | unit |
|---|---|---|
| eta_w(h), eta_p(h) | `price_table(theta_milli, capacity)[h]` | micro-credits per slot |
| theta_w, theta_p | `theta_milli` | thousandths |
| lambda, Lemma 1 | `lemma_rounds` | rounds |
"""

from collections.abc import Iterable
from functools import lru_cache
from math import ceil, floor, log

from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.units import CREDIT_MICRO, ONE_MILLI
from evenshare_research.market.model import MarketJob

# theta - 1 must be at least 1 (section 4.4).
LEAST_THETA_MILLI = 2 * ONE_MILLI


@lru_cache(maxsize=64)
def price_table(theta_milli: int, capacity: int) -> tuple[int, ...]:
    """Return a unit's price per slot while h of `capacity` units are allocated, for each h from 0.

    Raises:
        ValueError: a negative capacity, or theta below 1.
    """
    return tuple(
        posted_price_micro(CREDIT_MICRO, theta_milli, used, capacity)
        for used in range(capacity + 1)
    )


def theta_milli_of(
    jobs: Iterable[MarketJob], *, longest: int, factor: float = 1.0
) -> tuple[int, int]:
    """Return theta of workers and of PSs with which a full pool rejects all these jobs.

    Theta is `factor` times 1 + the largest f / worker slots (f / PS slots), and at least 2. The
    maximum is over schedules of at most `longest` slots that start at once. With a factor below 1,
    theta is too low, which is better under heavy load (figure 11).

    Raises:
        ValueError: the factor is not positive.
    """
    if not factor > 0:
        raise ValueError("factor: must be above 0")
    workers = ps = 0.0
    for job in jobs:
        for count in range(1, job.chunks + 1):
            slots = job.duration(count, centralised=True)
            if slots <= longest:
                value = job.utility_micro(slots) / CREDIT_MICRO
                workers, ps = max(workers, value / (count * slots)), max(ps, value / slots)
    worker_theta, ps_theta = (
        max(LEAST_THETA_MILLI, ceil(factor * (1 + most) * ONE_MILLI)) for most in (workers, ps)
    )
    return worker_theta, ps_theta


def lemma_rounds(total: float, least: float, worker_theta_milli: int, ps_theta_milli: int) -> int:
    """Return lambda of Lemma 1: floor((log total - log least) / log(sigma / (sigma - 1))) + 1.

    `total`: the sum of f over all jobs. `least`: the smallest f. sigma = 2 (log theta_w + log
    theta_p), the approximation ratio of A_maxIrev (Lemma 3), natural logarithms.

    Raises:
        ValueError: `least` is not positive, or above `total`; sigma is 1 or less.
    """
    if not 0 < least <= total:
        raise ValueError("least: must be above 0 and at most the total")
    sigma = 2 * (log(worker_theta_milli / ONE_MILLI) + log(ps_theta_milli / ONE_MILLI))
    if sigma <= 1:
        raise ValueError("theta: Lemma 1 needs 2 (log theta_w + log theta_p) above 1")
    return floor((log(total) - log(least)) / (log(sigma) - log(sigma - 1))) + 1
