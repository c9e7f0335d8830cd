"""Texts about quota trades: the GPUs given, and their value."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import percent, thousands
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
        if not undone:
            text = _("The last trades of GPU types: {made} made")
        elif not made:
            text = _("The last trades of GPU types: {undone} undone")
        else:
            text = _("The last trades of GPU types: {made} made, {undone} undone")
    elif not undone:
        text = ngettext("{made} trade of GPU types", "{made} trades of GPU types", made)
    elif not made:
        text = ngettext(
            "{undone} trade of GPU types undone", "{undone} trades of GPU types undone", undone
        )
    else:
        text = ngettext(
            "{made} trade of GPU types made, {undone} undone",
            "{made} trades of GPU types made, {undone} undone",
            made,
        )
    return text.format(made=thousands(made), undone=thousands(undone))


def gpus_text(gpus: Decimal, gpu_type: str, places: int = 2) -> str:
    """Return "3.13 k80"."""
    return f"{thousands(gpus, places)} {gpu_type}"


def exact_text(number: Decimal) -> str:
    """Return all digits of an amount or a rate, without trailing zeros: "3.125", "1"."""
    exact = number.quantize(Decimal("0.000001")).normalize()
    return thousands(exact, max(0, -int(exact.as_tuple().exponent)))


def rate_text(view: TradeRow) -> str:
    """Return the rate; negative if a trade was undone."""
    return thousands(view.rate, 2)


def speedups_text(view: TradeRow) -> str:
    """Return the fast GPU's speedup for the visible sides, seller first: "1.25 to 6.25"."""
    sides = [side for side in (view.seller_side, view.buyer_side) if side]
    speedups = [thousands(side.speedup, 2) for side in sides]
    if len(speedups) < 2:
        return "".join(speedups)
    return _("{low} to {high}").format(low=speedups[0], high=speedups[1])


def trade_headline(view: TradeRow) -> str:
    """Return "vision bought 1 v100 of quota from speech for 3.125 k80."."""
    buyer, seller = _name(view.buyer), _name(view.seller)
    bought = f"{exact_text(view.bought_gpus)} {view.bought_type}"
    sold = f"{exact_text(view.sold_gpus)} {view.sold_type}"
    text = (
        _("{buyer} returned {bought} of quota to {seller} and got its {sold} back.")
        if view.undone
        else _("{buyer} bought {bought} of quota from {seller} for {sold}.")
    ).format(buyer=buyer, seller=seller, bought=bought, sold=sold)
    return text[0].upper() + text[1:]


def verdict_text(view: TradeRow) -> str:
    """Return whether a visible side is worse off."""
    sides = [side for side in (view.buyer_side, view.seller_side) if side]
    if any(side.is_worse for side in sides):
        return _("A side received less than it gave; see the round's certificate.")
    if view.undone:
        return _(
            "A trade is undone when it no longer benefits both sides; each gets its quota back."
        )
    if len(sides) == 2:
        return _("No side is worse off, at the speeds of its jobs.")
    return _("You are not worse off, at the speeds of your jobs. The other side is hidden.")


def receipt_sides(view: TradeRow) -> list[dict[str, Any]]:
    """Return a receipt's rows: what each side gave and received, and its gain."""
    bought = f"{exact_text(view.bought_gpus)} {view.bought_type}"
    sold = f"{exact_text(view.sold_gpus)} {view.sold_type}"
    parts = (
        (_("buyer"), view.buyer, view.buyer_side, sold, bought),
        (_("seller"), view.seller, view.seller_side, bought, sold),
    )
    return [
        {
            "role": role,
            "badge": badge_of(seen),
            "gave": received if view.undone else gave,
            "received": gave if view.undone else received,
            "side": side,
            "note": _side_note(view, side, is_buyer=side is view.buyer_side),
            "gain": "" if side is None or view.undone else _gain_text(side.gain),
        }
        for role, seen, side, gave, received in parts
    ]


def _side_note(view: TradeRow, side: TradeSideRow | None, *, is_buyer: bool) -> Note | None:
    """Return how the values that a side gave and received are computed."""
    if side is None:
        return None
    slow, fast = view.sold_type, view.bought_type
    product = (
        f"{exact_text(view.bought_gpus)} {fast} \N{MULTIPLICATION SIGN} {exact_text(side.speedup)}",
        exact_text(side.received if is_buyer else side.gave),
    )
    plain = (f"{exact_text(view.sold_gpus)} {slow}", exact_text(view.sold_gpus))
    first, second = (product, plain) if is_buyer else (plain, product)
    return Note(
        _("Throughput in GPUs of {type}").format(type=slow),
        (
            LineItem(_("after: {gpus}").format(gpus=first[0]), first[1]),
            LineItem(_("before: {gpus}").format(gpus=second[0]), second[1]),
        ),
        LineItem(_("after \N{DIVISION SIGN} before, less 1"), _gain_text(side.gain)),
        text=_(
            "One {fast} has the throughput of {count} {slow} for its jobs, by the speeds at the"
            " time of the trade."
        ).format(fast=fast, count=exact_text(side.speedup), slow=slow),
    )


def _gain_text(gain: float) -> str:
    sign = "+" if gain > 0 else ""
    return sign + percent(gain, 1)


def traded_text(claims: Iterable[LastRoundClaim]) -> str:
    """Return a sentence about trades and the fair share; empty without trades."""
    if not any(claim.swapped for claim in claims):
        return ""
    return " " + _(
        "The fair share uses quotas before trades: a tenant receives more of a type that it"
        " bought, less of a type that it sold, and fewer GPUs in total if it bought faster ones."
    )


def claim_line(claim: LastRoundClaim) -> LineItem:
    """Return a quota by its type, with the effect of trades: label "v100, 2 bought" and value 4."""
    text = claim.gpu_type
    if claim.swapped:
        changed = _("{type}, {count} bought") if claim.swapped > 0 else _("{type}, {count} sold")
        text = changed.format(type=text, count=abs(claim.swapped))
    return LineItem(text, thousands(claim.quota))


def _name(seen: VisibleTenant | None) -> str:
    return seen.name if seen else _(OTHER_TENANT)
