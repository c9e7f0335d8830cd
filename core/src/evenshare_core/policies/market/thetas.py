"""Theta of each GPU type from history, and a pool's prices by the number of GPUs in use.

Source: Astraea-online, (8): theta - 1 is at least the highest value of any job per worker slot, so
that a full pool rejects every job. It is estimated from the jobs of the last 30 days.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from evenshare_core.domain.snapshot import PoolPrice
from evenshare_core.domain.utilities import MOST_MICRO
from evenshare_core.money.fixed_point import CONTEXT
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.market.job_values import JobOnType
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.units import HOUR_US, ONE_MILLI

DAY_US = 24 * HOUR_US
HISTORY_DAYS = 30
# The largest theta that fits numeric(12, 3). Values are at most a billion credits per GPU-hour, so
# theta is this large only if the base rate is below a few credits.
THETA_MAX_MILLI = 10**12 - 1

Prices = npt.NDArray[np.int64]


class TopValues:
    """The highest value of a GPU-hour to any job, by GPU type and day of pool time.

    Only a day's maximum is needed, so a type has at most 31 pairs of numbers.
    """

    def __init__(self, memory: Mapping[str, Any], at_us: int) -> None:
        """`memory`: a result of `data`, read back from JSON."""
        self._days: dict[str, dict[int, int]] = {name: dict(rows) for name, rows in memory.items()}
        self._data: dict[str, list[list[int]]] | None = None
        self.forget(at_us)

    def forget(self, at_us: int) -> None:
        """Remove days before the last 30 days."""
        oldest = at_us // DAY_US - HISTORY_DAYS
        if any(day < oldest for rows in self._days.values() for day in rows):
            self._data = None
            for name, rows in self._days.items():
                self._days[name] = {day: micro for day, micro in rows.items() if day >= oldest}

    def stays_until(self) -> int | None:
        """Return the time at which the earliest day is removed, or None if there is no day."""
        days = [day for rows in self._days.values() for day in rows]
        return (min(days) + HISTORY_DAYS + 1) * DAY_US if days else None

    def see(self, job: Iterable[JobOnType], submitted_us: int) -> None:
        """Include a submitted job, with its value on each type that it accepts."""
        day, self._data = submitted_us // DAY_US, None
        for one in job:
            days = self._days.setdefault(one.gpu_type, {})
            days[day] = max(days.get(day, 0), one.hourly_micro())

    def top_micro(self, gpu_type: str) -> int:
        """Return the highest value of all kept days."""
        return max(self._days.get(gpu_type, {}).values(), default=0)

    def data(self) -> dict[str, list[list[int]]]:
        """Return the stored memory. The same object is returned until the memory changes."""
        if self._data is None:
            self._data = {
                name: [[day, days[day]] for day in sorted(days)]
                for name, days in sorted(self._days.items())
                if days
            }
        return self._data


def price_settings(
    rows: Iterable[PoolPrice], tops: TopValues, options: MarketOptions
) -> tuple[PoolPrice, ...]:
    """Return the base and theta of the next round's prices."""
    if options.theta == "fixed":
        return tuple(rows)
    factor_milli = options.theta_factor_milli
    return tuple(
        replace(row, theta_milli=_theta_milli(row, tops.top_micro(row.gpu_type), factor_milli))
        for row in rows
    )


def _theta_milli(row: PoolPrice, top_micro: int, factor_milli: int) -> int:
    """Return 1 + value / base x factor, rounded up, or the operator's theta if that is higher."""
    if not row.base_micro:
        return row.theta_milli
    milli = ONE_MILLI - (-top_micro * factor_milli // row.base_micro)
    return max(row.theta_milli, min(milli, THETA_MAX_MILLI))


@lru_cache(maxsize=256)
def price_curve(base_micro: int, theta_milli: int, capacity: int) -> Prices:
    """Return `posted_price_micro` for each number of GPUs in use, from 0 to capacity.

    Prices above the highest possible value of a job are replaced by a price just above it. Powers
    are computed by repeated multiplication with 40 digits.
    """
    theta = CONTEXT.divide(Decimal(theta_milli), Decimal(ONE_MILLI))
    top = posted_price_micro(base_micro, theta_milli, capacity, capacity)
    prices = [top] * (capacity + 1)
    if capacity:
        step = CONTEXT.exp(CONTEXT.divide(CONTEXT.ln(theta), Decimal(capacity)))
        base, power = Decimal(base_micro), Decimal(1)
        multiply, subtract = CONTEXT.multiply, CONTEXT.subtract
        for used in range(capacity):
            exact = multiply(base, subtract(power, Decimal(1)))
            prices[used] = int(exact.to_integral_value(ROUND_HALF_EVEN, CONTEXT))
            power = multiply(power, step)
    curve = np.array([min(price, MOST_MICRO + 1) for price in prices], dtype=np.int64)
    curve.setflags(write=False)
    return curve
