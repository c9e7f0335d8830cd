"""What a job still takes that has run for a while: an estimate that is wrong shows by and by.

A job's work is taken to be normal about its estimate W with the standard error s. Of a job that
has run r and has not ended, it is the part of that above r: its mean is W + s h(z), its deviation
s sqrt(1 + z h(z) - h(z)^2), with z = (r - W) / s and h(z) = f(z) / (1 - F(z)). So W - r is too
little from the start of its last part on, and most so where r passes W. At r = 0 nothing is known
but W and s: what the formula says beside them there (no work is negative) is taken off the mean,
less and less until r = W, and the deviation is in proportion to it.

Whole numbers, so that a decision made of them is the same bytes everywhere: h and the root are
tables in thousandths, straight between their points.

Source: the truncated normal distribution; Johnson, Kotz and Balakrishnan, "Continuous Univariate
Distributions", volume 1, 13.10.1.
"""

from __future__ import annotations

from typing import NamedTuple

from evenshare_core.units import ONE_MILLI

LEAST_PERCENT = 5  # of W: what a job that outlived it is taken to need at least
_FIRST, _STEP = -4 * ONE_MILLI, ONE_MILLI // 4
# h(z) and sqrt(1 + z h(z) - h(z)^2), in thousandths, of z from -4 to 4.
_HAZARD = (
    0, 0, 1, 2, 4, 9, 18, 32, 55, 90, 139, 204, 288, 389, 509, 646, 798, 964, 1141, 1329, 1525,
    1729, 1939, 2154, 2373, 2596, 2823, 3052, 3283, 3516, 3751, 3988, 4226,
)  # fmt: skip # a table
_DEVIATION = (
    1000, 999, 998, 997, 993, 987, 978, 963, 942, 914, 879, 838, 794, 746, 697, 649, 603, 559, 518,
    481, 446, 415, 387, 361, 338, 317, 298, 281, 266, 251, 239, 227, 216,
)  # fmt: skip # a table


class WorkLeft(NamedTuple):
    """What a job still takes, and its standard error, in microseconds."""

    mean_us: int
    deviation_us: int


def work_left(whole_us: int, ran_us: int, error_milli: int = 0) -> WorkLeft:
    """Return what is left of a job that is estimated at `whole_us` and has run `ran_us`.

    `error_milli`: the relative standard error of `whole_us`, in thousandths. The mean is
    `LEAST_PERCENT` of `whole_us` at least, and 1.

    Raises:
        ValueError: a negative time or error.
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
    # Later than the table's end it is taken to need as much as there.
    ahead_us = min(ran_us, whole_us + 4 * error_us)
    mean_us = whole_us - ahead_us + error_us * hazard // ONE_MILLI
    deviation_us = error_us * _between(_DEVIATION, z_milli) // _between(_DEVIATION, start_milli)
    return WorkLeft(max(least_us, mean_us), deviation_us)


def _between(table: tuple[int, ...], z_milli: int) -> int:
    """Return the table's value there, on the line between two points; at the ends as they are."""
    place, over = divmod(z_milli - _FIRST, _STEP)
    if place < 0:
        return table[0]
    if place >= len(table) - 1:
        return table[-1]
    low, high = table[place], table[place + 1]
    return low + (high - low) * over // _STEP
