"""An estimate: an amount with its error and its source.

Source: W. Gao et al., "UniSched: A Unified Scheduler for Deep Learning Training Jobs With Different
User Demands", IEEE TC 2024, III-B.

Amounts are integers: microseconds, iterations, or thousandths of a speed, as the name of the field
or function states. Fits use floats, but stored estimates are rounded, so that they have the same
bytes on every machine.
"""

from collections.abc import Iterable
from math import ceil

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.domain.values import Value
from evenshare_core.units import ONE_MILLI


class Estimate(Value, frozen=True, array_like=True):
    """A whole amount, its relative standard error in thousandths (rounded up), and its source."""

    amount: int
    error_milli: int
    source: EstimateSource

    @property
    def deviation(self) -> float:
        """The standard error in the unit of the amount."""
        return self.amount * self.error_milli / ONE_MILLI


def estimate_of(amount: float, deviation: float, source: EstimateSource) -> Estimate:
    """Return an estimate of an amount with its standard error, both in the same unit.

    An amount that rounds to 0 has error 0.

    Raises:
        ValueError: the amount or its deviation is negative.
    """
    if amount < 0 or deviation < 0:
        raise ValueError(f"amount, deviation: must be at least 0; got {amount}, {deviation}")
    whole = round(amount)
    return Estimate(whole, ceil(ONE_MILLI * deviation / amount) if whole else 0, source)


def least_sure(sources: Iterable[EstimateSource]) -> EstimateSource:
    """Return the least certain of several sources, the source of a combined estimate."""
    order = list(EstimateSource)
    return max(sources, key=order.index)
