"""Distribution of a job's run time around its estimate.

Source: 3Sigma (EuroSys 2018), 4.1 and 4.2. All values are integers, so rounds are equal on every
machine.
"""

from evenshare_core.estimation.remaining import LEAST_PERCENT
from evenshare_core.units import ONE_MILLI

# Medians of eight equal parts of a normal distribution, in thousandths of its standard deviation.
QUANTILES = (-1534, -887, -489, -157, 157, 489, 887, 1534)
PARTS = len(QUANTILES)


def run_times(estimate_us: int, error_milli: int) -> tuple[int, ...]:
    """Return `PARTS` equally likely run times, ascending, in us.

    `error_milli`: relative standard error of the estimate. The lower limit is 5 % of the estimate.
    """
    least = max(1, estimate_us * LEAST_PERCENT // 100)
    scale = ONE_MILLI * ONE_MILLI
    return tuple(
        max(least, estimate_us * (scale + error_milli * part) // scale) for part in QUANTILES
    )


def remaining_times(lengths: tuple[int, ...], ran_us: int) -> tuple[int, ...]:
    """Return by how much each length exceeds `ran_us`, in us.

    If the job has run longer than all lengths, assume that it needs as long again as it ran beyond
    the longest.
    """
    left = tuple(length - ran_us for length in lengths if length > ran_us)
    longest = lengths[-1]
    return left or (max(1, ran_us - longest, longest * LEAST_PERCENT // 100),)
