"""Remaining work of a running job, corrected for the error of its estimate.

A job's work is assumed to be normally distributed around its estimate W with standard error s. If
the job has run r and has not ended, the distribution is truncated below r.

| remaining work | value |
|---|---|
| mean | W - r + s h(z) |
| deviation | s sqrt(1 + z h(z) - h(z)^2) |
| z, h(z) | (r - W) / s, f(z) / (1 - F(z)) |

So W - r is too low near the end of the job, most of all if r exceeds W. At r = 0, nothing has been
observed, so the mean should be W. The formula gives more there, since it excludes negative work.
This excess is subtracted from the mean, by a part that falls to 0 at r = W. The deviation is scaled
so that it is s at r = 0.

All numbers are integers, so that a decision has the same bytes on every machine. The values of h
and the root come from tables in thousandths, with linear interpolation.

Source: the truncated normal distribution; Johnson, Kotz and Balakrishnan, "Continuous Univariate
Distributions", volume 1, 13.10.1.
"""

from typing import NamedTuple

from evenshare_core.units import ONE_MILLI

LEAST_PERCENT = 5  # % of W: the minimum remaining work of a job that ran longer than W
_FIRST, _STEP = -4 * ONE_MILLI, ONE_MILLI // 4
# h(z) and sqrt(1 + z h(z) - h(z)^2), in thousandths, for z from -4 to 4.
_HAZARD = (
    0, 0, 1, 2, 4, 9, 18, 32, 55, 90, 139, 204, 288, 389, 509, 646, 798, 964, 1141, 1329, 1525,
    1729, 1939, 2154, 2373, 2596, 2823, 3052, 3283, 3516, 3751, 3988, 4226,
)  # fmt: skip # a table
_DEVIATION = (
    1000, 999, 998, 997, 993, 987, 978, 963, 942, 914, 879, 838, 794, 746, 697, 649, 603, 559, 518,
    481, 446, 415, 387, 361, 338, 317, 298, 281, 266, 251, 239, 227, 216,
)  # fmt: skip # a table


class WorkLeft(NamedTuple):
    """A job's remaining work and its standard error, in microseconds."""

    mean_us: int
    deviation_us: int


def work_left(whole_us: int, ran_us: int, error_milli: int = 0) -> WorkLeft:
    """Return the remaining work of a job estimated at `whole_us` that has run for `ran_us`.

    `error_milli`: the relative standard error of `whole_us`, in thousandths. The mean is at least 1
    and at least `LEAST_PERCENT` of `whole_us`.

    Raises:
        ValueError: a time or the error is negative.
    """
    if min(whole_us, ran_us, error_milli) < 0:
        raise ValueError("whole_us, ran_us, error_milli: must be at least 0")
    least_us = max(1, whole_us * LEAST_PERCENT // 100)
    error_us = whole_us * error_milli // ONE_MILLI
    if not error_us:
        return WorkLeft(max(least_us, whole_us - ran_us), 0)
    z_milli = (ran_us - whole_us) * ONE_MILLI // error_us
    start_milli = -whole_us * ONE_MILLI // error_us
    hazard = _between(_HAZARD, z_milli)
    if z_milli < 0:
        hazard -= _between(_HAZARD, start_milli) * (whole_us - ran_us) // whole_us
    # Beyond the end of the table, the remaining work stays constant.
    ahead_us = min(ran_us, whole_us + 4 * error_us)
    mean_us = whole_us - ahead_us + error_us * hazard // ONE_MILLI
    deviation_us = error_us * _between(_DEVIATION, z_milli) // _between(_DEVIATION, start_milli)
    return WorkLeft(max(least_us, mean_us), deviation_us)


def _between(table: tuple[int, ...], z_milli: int) -> int:
    """Return the table's value at z by linear interpolation, clamped at both ends."""
    place, over = divmod(z_milli - _FIRST, _STEP)
    if place < 0:
        return table[0]
    if place >= len(table) - 1:
        return table[-1]
    low, high = table[place], table[place + 1]
    return low + (high - low) * over // _STEP
