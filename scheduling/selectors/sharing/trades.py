"""Trades of quota between tenants, as a viewer may see them.

They are read from the events of rounds, which are never deleted. The pool's visibility decides
which sides are named (`scheduling.selectors.visibility`). The result of a trade for a side is shown
if the viewer may see that side.
"""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

import msgspec
from django.db.models import Case, F, Q, QuerySet, Sum, When, Window

from evenshare_core.domain.decision import Trade
from evenshare_core.fairness.trades import TradeSide, trade_sides
from evenshare_core.money.fixed_point import PLACES
from evenshare_core.units import GPU_MICRO
from scheduling.models import LeaseEvent
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.answers import Answer, Hidden, about, formatted_as

Gpus = Annotated[Decimal, formatted_as(float, type="number")]


class TradeSideRow(Answer, frozen=True):
    """A trade's result for one side, in GPUs of the slower type, at the speeds of its own jobs."""

    speedup: Annotated[Gpus, about("Speedup of the faster type over the slower type.")]
    gave: Gpus
    received: Gpus
    gain: Annotated[float, about("Received / given - 1.")]
    is_worse: Hidden[bool]


class TradeRow(Answer, frozen=True):
    """An exchange of quota of two GPU types between two tenants, or its reversal, with its amounts.

    A tenant, and the trade's result for it, is null if you may not see it.
    """

    number: Annotated[int, about("Number of the trade in its pool, as in the URL of its page.")]
    at: datetime
    round: int
    undone: bool
    bought_type: Annotated[str, about("The faster GPU type.")]
    bought_gpus: Annotated[Gpus, about("Received by the buyer, given by the seller.")]
    sold_type: str
    sold_gpus: Gpus
    rate: Annotated[Gpus, about("Slower GPUs per faster one; negative if the trade was undone.")]
    buyer: VisibleTenant | None = None
    seller: VisibleTenant | None = None
    buyer_side: TradeSideRow | None = None
    seller_side: TradeSideRow | None = None


def list_trades(
    pool_id: int, visibility: Visibility, *, limit: int, before: int | None = None
) -> tuple[list[TradeRow], bool]:
    """Return a pool's trades that the viewer may see, newest first, and whether there are more.

    `before`: the `number` at which a page continues. If rows of other tenants are hidden, only
    trades of the viewer's tenants are returned. A single query.
    """
    events = _visible(pool_id, visibility)
    if before is not None:
        events = events.filter(number__lt=before)
    rows = list(events.order_by("-round", "-number")[: limit + 1])
    return [_view(row, visibility) for row in rows[:limit]], len(rows) > limit


def trades_of_round(pool_id: int, number: int, visibility: Visibility) -> tuple[TradeRow, ...]:
    """Return the trades that a round made or undid, in the round's order. A single query."""
    events = _visible(pool_id, visibility).filter(round=number).order_by("number")
    return tuple(_view(row, visibility) for row in events)


def find_trade(pool_id: int, number: int, visibility: Visibility) -> TradeRow | None:
    """Return a trade by its number, or None if the viewer may not see it. A single query."""
    row = _visible(pool_id, visibility).filter(number=number).first()
    return None if row is None else _view(row, visibility)


def linked_trade(pool_id: int, number: int) -> LeaseEvent | None:
    """Return the trade that a reversal undid, or the reversal of a trade, or None. Two queries.

    A reversal has the fields of the trade that it undoes, except the time and the sign of the rate.
    Of several equal trades a policy undoes the newest one in force
    (`gandiva_fair.trading.undo_wrong`), so trades and reversals pair up like brackets. A change of
    policy may drop trades without a record. They stay unpaired, below the newer trades.
    """
    trades = LeaseEvent.objects.filter(pool_id=pool_id, kind=LeaseEvent.Kind.TRADED)
    row = trades.filter(number=number).values("round", "data").first()
    if row is None:
        return None
    rate = row["data"]["rate_micro"]
    fields = {name: value for name, value in row["data"].items() if name not in _OF_ONE_EVENT}
    alike = trades.filter(data__contains=fields, data__rate_micro__in=(rate, -rate))
    if rate < 0:
        alike = alike.filter(round__lte=row["round"], number__lt=number)
        order = (F("round").desc(), F("number").desc())
    else:
        alike = alike.filter(round__gte=row["round"], number__gt=number)
        order = (F("round").asc(), F("number").asc())
    # The depth first reaches 1 at the event that pairs with this one.
    counted = Case(When(data__rate_micro=rate, then=-1), default=1)
    depth = Window(Sum(counted), order_by=order)
    return alike.annotate(depth=depth).filter(depth=1).order_by(*order).first()


_OF_ONE_EVENT = ("at_us", "rate_micro")


def _visible(pool_id: int, visibility: Visibility) -> QuerySet[LeaseEvent]:
    events = LeaseEvent.objects.filter(pool_id=pool_id, kind=LeaseEvent.Kind.TRADED)
    if visibility.hides:
        own = sorted(visibility.own)
        events = events.filter(Q(data__buyer__in=own) | Q(data__seller__in=own))
    return events


def _view(event: LeaseEvent, visibility: Visibility) -> TradeRow:
    trade = msgspec.convert([event.data[name] for name in Trade.__struct_fields__], Trade)
    buyer, seller = visibility.of(trade.buyer), visibility.of(trade.seller)
    for_buyer, for_seller = trade_sides(trade)
    return TradeRow(
        number=event.number,
        at=event.at,
        round=event.round or 0,
        undone=trade.rate_micro < 0,
        bought_type=trade.bought_type,
        bought_gpus=_gpus(trade.bought_micro),
        sold_type=trade.sold_type,
        sold_gpus=_gpus(trade.sold_micro),
        rate=_gpus(trade.rate_micro),
        buyer=buyer,
        seller=seller,
        buyer_side=_side(for_buyer, trade.buyer_rate_micro) if buyer else None,
        seller_side=_side(for_seller, trade.seller_rate_micro) if seller else None,
    )


def _side(side: TradeSide, speedup_micro: int) -> TradeSideRow:
    return TradeSideRow(
        speedup=_gpus(speedup_micro),
        gave=_rounded(side.gave),
        received=_rounded(side.received),
        gain=round(float(side.gain - 1), 6),
        is_worse=side.is_worse,
    )


def _gpus(micro: int) -> Decimal:
    return (Decimal(micro) / GPU_MICRO).quantize(PLACES)


def _rounded(gpus: Fraction) -> Decimal:
    return (Decimal(gpus.numerator) / gpus.denominator).quantize(PLACES)
