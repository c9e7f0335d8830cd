"""Gain-as-you-contribute, pure: from lease events to charged terms and their lenders.

`idle` integrates lendable idle quota and splits a charge by it; `terms` sweeps over lease
events and closes terms with their lenders' weights.
"""

from evenshare_core.money.revenue.idle import (
    OPERATOR,
    ChargeShare,
    IdleSums,
    LendableQuota,
    split_amount,
    split_charge,
    weights_between,
)
from evenshare_core.money.revenue.terms import ClosedTerm, Event, Sweep, price_to_micro

__all__ = [
    "OPERATOR",
    "ChargeShare",
    "ClosedTerm",
    "Event",
    "IdleSums",
    "LendableQuota",
    "Sweep",
    "price_to_micro",
    "split_amount",
    "split_charge",
    "weights_between",
]
