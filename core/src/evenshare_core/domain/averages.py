"""Recent averages of repeated reports, with detection of changes.

All numbers are integers, so that the same reports give the same average on every machine. The mean
and the mean deviation follow RFC 6298 (2.3); the first reports have equal weight. A two-sided
cumulative sum (Page 1954, "Continuous inspection schemes") detects a change, and the average
restarts.
"""

from typing import NamedTuple

from evenshare_core.units import ONE_MILLI

# The first `RECENT` reports have equal weight; after these, the newest has the weight 1 / `RECENT`.
RECENT = 16
# With fewer reports the normal value is unknown, so no change can be detected.
BEFORE_CHANGES = 8
# Limits in thousandths of the mean. Each cumulative sum adds a report's deviation beyond the larger
# of the drift and the spread, at most `STEP_MILLI` per report. A sum above `ALARM_MILLI` is a
# change.
DRIFT_MILLI, STEP_MILLI, ALARM_MILLI = 50, 250, 500


class Average(NamedTuple):
    """The recent mean of reported values, all in the unit of the values.

    `reports` counts the reports since the last restart; `deviation` is the mean distance from the
    mean. `up_milli` and `down_milli` are the cumulative sums that detect a change.
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


def add_report(average: Average, value: int) -> tuple[Average, bool]:
    """Return the average after a report of `value` (at least 1), and whether it restarted.

    From `BEFORE_CHANGES` reports on, a report is clamped to between half and twice the mean: a
    machine that pauses is not a change of speed.
    """
    if average.reports == 0:
        return Average(1, value), False
    up, down = _sums(average, value)
    if average.reports >= BEFORE_CHANGES:
        if max(up, down) > ALARM_MILLI:
            return Average(1, value), True
        value = min(max(value, average.mean // 2), average.mean * 2)
    else:
        up = down = 0
    reports = average.reports + 1
    share = min(reports, RECENT)
    off = value - average.mean
    mean = average.mean + _rounded(off, share)
    deviation = average.deviation + _rounded(abs(off) - average.deviation, share)
    return Average(reports, max(mean, 1), deviation, up, down), False


def _sums(average: Average, value: int) -> tuple[int, int]:
    """Return the cumulative sums after this report, for slower and for faster."""
    off = (value - average.mean) * ONE_MILLI // average.mean
    off = min(max(off, -STEP_MILLI), STEP_MILLI)
    allowed = max(DRIFT_MILLI, average.spread_milli)
    return max(0, average.up_milli + off - allowed), max(0, average.down_milli - off - allowed)


def _rounded(part: int, whole: int) -> int:
    """Divide, rounding half away from zero, so that both directions are treated equally."""
    size = (2 * abs(part) + whole) // (2 * whole)
    return size if part >= 0 else -size
