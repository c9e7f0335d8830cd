"""Stored trades of rounds, for stages and tests of pages."""

from __future__ import annotations

from typing import Any

from evenshare_core.domain.decision import Trade
from evenshare_core.domain.instants import to_us
from scheduling.engine.records import trade_row
from scheduling.models import LeaseEvent, PoolFence
from tests.factories import Cluster


def write_trade(
    lab: Cluster, buyer: str, seller: str, *, round_: int = 1, **changes: Any
) -> LeaseEvent:
    """Write a trade of one V100 for 3.125 K80s, with `changes`.

    It is worth 5 to the buyer and 1.25 to the seller.
    """
    fields: dict[str, Any] = {
        "bought_type": "v100",
        "bought_micro": 1_000_000,
        "sold_type": "k80",
        "sold_micro": 3_125_000,
        "rate_micro": 3_125_000,
        "buyer_rate_micro": 5_000_000,
        "seller_rate_micro": 1_250_000,
        **changes,
    }
    parties: dict[str, Any] = {"buyer": lab.tenants[buyer].pk, "seller": lab.tenants[seller].pk}
    trade = Trade(**parties, **fields, at_us=to_us(lab.at))
    return write_event(lab, "traded", trade_row(trade), round_=round_)


def write_event(lab: Cluster, kind: str, data: dict[str, Any], *, round_: int = 1) -> LeaseEvent:
    """Write the next event of a pool, without a lease."""
    fence = PoolFence.objects.get(pool=lab.pool)
    number = fence.next_event
    PoolFence.objects.filter(pk=fence.pk).update(next_event=number + 1)
    return LeaseEvent.objects.create(
        pool=lab.pool, number=number, kind=kind, at=lab.at, round=round_, data=data
    )
