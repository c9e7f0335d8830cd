"""Recent averages of what is reported again and again, which start anew when it changes.

Whole numbers throughout, so that the same reports give the same average everywhere. The mean and
the mean deviation move as in RFC 6298 (2.3), a plain average first; a change is what a two-sided
cumulative sum (Page 1954, "Continuous inspection schemes") says is one.
"""

from __future__ import annotations

from typing import NamedTuple

from evenshare_core.units import ONE_MILLI

# The plain average of so many reports first; from then on the newest counts one part in so many.
RECENT = 16
# Fewer tell nothing of what is usual, so that nothing can be a change of it.
BEFORE_CHANGES = 8
# In thousandths of the mean. What a report differs by beyond the drift, or the spread where that is
# larger, is added up, at most `STEP_MILLI` of one report; above `ALARM_MILLI` it is a change.
DRIFT_MILLI, STEP_MILLI, ALARM_MILLI = 50, 250, 500


class Average(NamedTuple):
    """The recent mean of reported values, all in the unit of the values.

    `reports` since it started; `deviation` is the mean distance from the mean. `up_milli` and
    `down_milli` are the cumulative sums that look for a change.
    """

    reports: int = 0
    mean: int = 0
    deviation: int = 0
    up_milli: int = 0
    down_milli: int = 0

    @property
    def spread_milli(self) -> int:
        """The mean distance from the mean, in thousandths of the mean, rounded up."""
        return -(-self.deviation * ONE_MILLI // self.mean) if self.mean else 0


class Averaged(NamedTuple):
    """An average with one report more; `is_changed`: it started anew with it."""

    average: Average
    is_changed: bool = False


def add_report(average: Average, value: int) -> Averaged:
    """Return the average with a report of `value` (at least 1) in it.

    Once the average tells what is usual, a single report moves it as one of half or twice the mean
    at most: a pause of the machine is no speed.
    """
    if average.reports == 0:
        return Averaged(Average(1, value))
    up, down = _sums(average, value)
    if average.reports >= BEFORE_CHANGES:
        if max(up, down) > ALARM_MILLI:
            return Averaged(Average(1, value), is_changed=True)
        value = min(max(value, average.mean // 2), average.mean * 2)
    else:
        up = down = 0
    reports = average.reports + 1
    share = min(reports, RECENT)
    off = value - average.mean
    mean = average.mean + _rounded(off, share)
    deviation = average.deviation + _rounded(abs(off) - average.deviation, share)
    return Averaged(Average(reports, max(mean, 1), deviation, up, down))


def _sums(average: Average, value: int) -> tuple[int, int]:
    """The cumulative sums with this report, of what is slower and of what is faster."""
    off = (value - average.mean) * ONE_MILLI // average.mean
    off = min(max(off, -STEP_MILLI), STEP_MILLI)
    allowed = max(DRIFT_MILLI, average.spread_milli)
    return max(0, average.up_milli + off - allowed), max(0, average.down_milli - off - allowed)


def _rounded(part: int, whole: int) -> int:
    """`part` / `whole`, half away from zero, so that both directions are treated alike."""
    size = (2 * abs(part) + whole) // (2 * whole)
    return size if part >= 0 else -size
