"""Gain-as-you-contribute: pure functions from lease events to terms, charges and lenders.

`idle` sums parts of lendable idle quota and splits a charge by them. `terms` processes lease events
in order and closes terms with their charges and their lenders' weights. `records` has the records
of both. `factors` gives the intervals whose sum is a weight.
"""

from evenshare_core.money.revenue.factors import (
    CountedSpan,
    FactorSweep,
    IdleStep,
    integrals_of,
    part_of,
)
from evenshare_core.money.revenue.idle import (
    OPERATOR,
    WEIGHT_LIMIT,
    ChargeShare,
    IdleSums,
    LendableQuota,
    Mark,
    split_amount,
    split_charge,
    weights_between,
)
from evenshare_core.money.revenue.records import (
    LATE_ROUNDS,
    ClosedTerm,
    Event,
    price_to_micro,
)
from evenshare_core.money.revenue.terms import Sweep

__all__ = [
    "LATE_ROUNDS",
    "OPERATOR",
    "WEIGHT_LIMIT",
    "ChargeShare",
    "ClosedTerm",
    "CountedSpan",
    "Event",
    "FactorSweep",
    "IdleStep",
    "IdleSums",
    "LendableQuota",
    "Mark",
    "Sweep",
    "integrals_of",
    "part_of",
    "price_to_micro",
    "split_amount",
    "split_charge",
    "weights_between",
]
