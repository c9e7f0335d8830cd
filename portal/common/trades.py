"""Texts about quota trades: the GPUs given, and their value."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from portal.charts.figures import MINUS, percent, plural, thousands
from portal.charts.notes import LineItem, Note
from portal.common.clocks import Clocks
from portal.common.tenant_badges import badge_of
from scheduling.selectors.sharing.trades import TradeRow, TradeSideRow
from scheduling.selectors.tenants.dashboard import LastRoundClaim
from scheduling.selectors.visibility import OTHER_TENANT, VisibleTenant


def trade_rows(views: Sequence[TradeRow], times: Clocks) -> list[dict[str, Any]]:
    """Return the rows of templates/components/trade_table.html."""
    return [
        {
            "view": view,
            "at": times.instant(view.at),
            "buyer": badge_of(view.buyer),
            "seller": badge_of(view.seller),
            "is_yours": any(seen and seen.you for seen in (view.buyer, view.seller)),
            "bought": gpus_text(view.bought_gpus, view.bought_type),
            "sold": gpus_text(view.sold_gpus, view.sold_type),
            "rate": rate_text(view),
            "speedups": speedups_text(view),
        }
        for view in views
    ]


def trades_title(views: Sequence[TradeRow], *, more: bool = False) -> str:
    """Return "3 trades of GPU types made, 1 undone"; `more`: earlier trades exist."""
    undone = sum(view.undone for view in views)
    made = len(views) - undone
    if more:
        counts = ((made, "made"), (undone, "undone"))
        text = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        return f"The last trades of GPU types: {text}"
    if not undone:
        return f"{plural(made, 'trade')} of GPU types"
    if not made:
        return f"{plural(undone, 'trade')} of GPU types undone"
    return f"{plural(made, 'trade')} of GPU types made, {undone:,} undone"


def gpus_text(gpus: Decimal, gpu_type: str, places: int = 2) -> str:
    """Return "3.13 k80"."""
    return f"{thousands(gpus, places)} {gpu_type}"


def exact_text(number: Decimal) -> str:
    """Return all digits of an amount or a rate, without trailing zeros: "3.125", "1"."""
    text = f"{abs(number):,.6f}".rstrip("0").rstrip(".")
    return (MINUS if number < 0 else "") + text


def rate_text(view: TradeRow) -> str:
    """Return the rate; negative if a trade was undone."""
    return thousands(view.rate, 2)


def speedups_text(view: TradeRow) -> str:
    """Return the fast GPU's speedup for the visible sides, seller first: "1.25 to 6.25"."""
    sides = [side for side in (view.seller_side, view.buyer_side) if side]
    return " to ".join(thousands(side.speedup, 2) for side in sides)


def trade_headline(view: TradeRow) -> str:
    """Return "vision bought 1 v100 of quota from speech for 3.125 k80."."""
    buyer, seller = _name(view.buyer), _name(view.seller)
    bought = f"{exact_text(view.bought_gpus)} {view.bought_type}"
    sold = f"{exact_text(view.sold_gpus)} {view.sold_type}"
    text = (
        f"{buyer} returned {bought} of quota to {seller} and got its {sold} back."
        if view.undone
        else f"{buyer} bought {bought} of quota from {seller} for {sold}."
    )
    return text[0].upper() + text[1:]


def verdict_text(view: TradeRow) -> str:
    """Return whether a visible side is worse off."""
    sides = [side for side in (view.buyer_side, view.seller_side) if side]
    if any(side.is_worse for side in sides):
        return "A side received less than it gave; see the round's certificate."
    if view.undone:
        return "A trade is undone when it no longer benefits both sides; each gets its quota back."
    if len(sides) == 2:
        return "No side is worse off, at the speeds of its jobs."
    return "You are not worse off, at the speeds of your jobs. The other side is hidden."


def receipt_sides(view: TradeRow) -> list[dict[str, Any]]:
    """Return a receipt's rows: what each side gave and received, and its gain."""
    bought = f"{exact_text(view.bought_gpus)} {view.bought_type}"
    sold = f"{exact_text(view.sold_gpus)} {view.sold_type}"
    parts = (
        ("buyer", view.buyer, view.buyer_side, sold, bought),
        ("seller", view.seller, view.seller_side, bought, sold),
    )
    return [
        {
            "role": role,
            "badge": badge_of(seen),
            "gave": received if view.undone else gave,
            "received": gave if view.undone else received,
            "side": side,
            "note": _side_note(view, role, side),
            "gain": "" if side is None or view.undone else _gain_text(side.gain),
        }
        for role, seen, side, gave, received in parts
    ]


def _side_note(view: TradeRow, role: str, side: TradeSideRow | None) -> Note | None:
    """Return how the values that a side gave and received are computed."""
    if side is None:
        return None
    slow, fast = view.sold_type, view.bought_type
    product = (
        f"{exact_text(view.bought_gpus)} {fast} \N{MULTIPLICATION SIGN} {exact_text(side.speedup)}",
        exact_text(side.received if role == "buyer" else side.gave),
    )
    plain = (f"{exact_text(view.sold_gpus)} {slow}", exact_text(view.sold_gpus))
    first, second = (product, plain) if role == "buyer" else (plain, product)
    return Note(
        f"Throughput in GPUs of {slow}",
        (
            LineItem(f"after: {first[0]}", first[1]),
            LineItem(f"before: {second[0]}", second[1]),
        ),
        LineItem("after \N{DIVISION SIGN} before, less 1", _gain_text(side.gain)),
        text=f"One {fast} has the throughput of {exact_text(side.speedup)} {slow} for its jobs,"
        " by the speeds at the time of the trade.",
    )


def _gain_text(gain: float) -> str:
    sign = "+" if gain > 0 else ""
    return sign + percent(gain, 1)


def traded_text(claims: Iterable[LastRoundClaim]) -> str:
    """Return a sentence about trades and the fair share; empty without trades."""
    if not any(claim.swapped for claim in claims):
        return ""
    return (
        " The fair share uses quotas before trades: a tenant receives more of a type that it"
        " bought, less of a type that it sold, and fewer GPUs in total if it bought faster ones."
    )


def claim_line(claim: LastRoundClaim) -> LineItem:
    """Return a quota by its type, with the effect of trades: label "v100, 2 bought" and value 4."""
    text = claim.gpu_type
    if claim.swapped:
        text += f", {abs(claim.swapped)} {'bought' if claim.swapped > 0 else 'sold'}"
    return LineItem(text, thousands(claim.quota))


def _name(seen: VisibleTenant | None) -> str:
    return seen.name if seen else OTHER_TENANT
