"""Theta per GPU type from history, and the prices of a pool by how many GPUs are used.

Source: Astraea-online, (8): theta - 1 is at least the most that any job is worth per worker slot,
so that a full pool rejects every job; estimated from the jobs of the last 30 days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from evenshare_core.domain.snapshot import PoolPrice
from evenshare_core.domain.utilities import MOST_MICRO
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.market.job_values import JobOnType
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.units import HOUR_US, ONE_MILLI

DAY_US = 24 * HOUR_US
HISTORY_DAYS = 30
# The most that the books store of a posted price's theta: numeric(12, 3). Jobs are worth a billion
# credits a GPU-hour at most, so only base rates below a few credits can meet it.
THETA_MAX_MILLI = 10**12 - 1

Prices = npt.NDArray[np.int64]
_CONTEXT = Context(prec=40, rounding=ROUND_HALF_EVEN)


class TopValues:
    """The most that a GPU-hour was worth to a job, by GPU type and day of pool time.

    A day's maximum is enough: 31 pairs of numbers for a type at most.
    """

    def __init__(self, memory: Mapping[str, Any], at_us: int) -> None:
        """`memory`: as `data` gave it, through JSON."""
        self._days: dict[str, dict[int, int]] = {name: dict(rows) for name, rows in memory.items()}
        self._data: dict[str, list[list[int]]] | None = None
        self.forget(at_us)

    def forget(self, at_us: int) -> None:
        """Leave out the days that are too long ago."""
        oldest = at_us // DAY_US - HISTORY_DAYS
        if any(day < oldest for rows in self._days.values() for day in rows):
            self._data = None
            for name, rows in self._days.items():
                self._days[name] = {day: micro for day, micro in rows.items() if day >= oldest}

    def stays_until(self) -> int | None:
        """The instant from which the first day is too long ago; None without any."""
        days = [day for rows in self._days.values() for day in rows]
        return (min(days) + HISTORY_DAYS + 1) * DAY_US if days else None

    def see(self, job: Iterable[JobOnType], submitted_us: int) -> None:
        """Count a job that came, on each type that it accepts."""
        day, self._data = submitted_us // DAY_US, None
        for one in job:
            days = self._days.setdefault(one.gpu_type, {})
            days[day] = max(days.get(day, 0), one.hourly_micro())

    def top_micro(self, gpu_type: str) -> int:
        """The most of all days that are kept."""
        return max(self._days.get(gpu_type, {}).values(), default=0)

    def data(self) -> dict[str, list[list[int]]]:
        """What the memory keeps; the same object until something is seen or forgotten."""
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
    """Return the price settings with the theta that prices of the next round are posted with."""
    if options.theta == "fixed":
        return tuple(rows)
    factor_milli = options.theta_factor_milli
    return tuple(
        replace(row, theta_milli=_theta_milli(row, tops.top_micro(row.gpu_type), factor_milli))
        for row in rows
    )


def _theta_milli(row: PoolPrice, top_micro: int, factor_milli: int) -> int:
    """1 + worth / base x factor, rounded up; the operator's where that is more."""
    if not row.base_micro:
        return row.theta_milli
    milli = ONE_MILLI - (-top_micro * factor_milli // row.base_micro)
    return max(row.theta_milli, min(milli, THETA_MAX_MILLI))


@lru_cache(maxsize=256)
def price_curve(base_micro: int, theta_milli: int, capacity: int) -> Prices:
    """Return the price at each number of used GPUs, 0 to capacity: `posted_price_micro` of each.

    One that is more than any job may be worth stands as just above that.

    Powers are multiplied up in the same context, which keeps 30 digits behind the last that counts.
    """
    theta = _CONTEXT.divide(Decimal(theta_milli), Decimal(ONE_MILLI))
    top = posted_price_micro(base_micro, theta_milli, capacity, capacity)
    prices = [top] * (capacity + 1)
    if capacity:
        step = _CONTEXT.exp(_CONTEXT.divide(_CONTEXT.ln(theta), Decimal(capacity)))
        base, power = Decimal(base_micro), Decimal(1)
        multiply, subtract = _CONTEXT.multiply, _CONTEXT.subtract
        for used in range(capacity):
            exact = multiply(base, subtract(power, Decimal(1)))
            prices[used] = int(exact.to_integral_value(ROUND_HALF_EVEN, _CONTEXT))
            power = multiply(power, step)
    curve = np.array([min(price, MOST_MICRO + 1) for price in prices], dtype=np.int64)
    curve.setflags(write=False)
    return curve
