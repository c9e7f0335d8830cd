"""Trades of quota in a pool: the list, and the receipt of each."""

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.common.access import access, pool_or_404, signed_in
from portal.common.clocks import clocks
from portal.common.lists import DIGITS_MAX, key_asked
from portal.common.trades import (
    exact_text,
    receipt_sides,
    trade_headline,
    trade_rows,
    trades_title,
    verdict_text,
)
from scheduling.selectors.rounds.lists import round_instants
from scheduling.selectors.sharing.trades import find_trade, linked_trade, list_trades
from scheduling.selectors.visibility import read_visibility
from tenants.scopes import site_scope

PAGE = 8


@signed_in
@require_safe
def trades(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the trades that the viewer may see, newest first, paged by key."""
    facts = pool_or_404(request, name)
    before = key_asked(request)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        rows, more = list_trades(facts.id, visibility, limit=PAGE, before=before)
        anchors = round_instants(facts.id, [row.round for row in rows])
    is_first = before is None
    context = {
        "pool": facts,
        "visibility": visibility,
        "trades": trade_rows(rows, clocks(facts, anchors)),
        "title": trades_title(rows, more=more and is_first)
        if rows
        else _("No such trade is visible to you."),
        "older": rows[-1].number if more else None,
        "is_first": is_first,
        "nav_key": "pool",
        "live": is_first,
    }
    return render(request, "pools/trades.html", context)


@signed_in
@require_safe
def trade(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Show the receipt of a trade, if the viewer may see it."""
    facts = pool_or_404(request, name)
    view = None
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        if len(str(number)) <= DIGITS_MAX:
            view = find_trade(facts.id, number, visibility)
        link = linked_trade(facts.id, number) if view else None
        anchors = round_instants(facts.id, [view.round] if view else [])
    if view is None:
        raise Http404
    times = clocks(facts, anchors)
    context = {
        "pool": facts,
        "view": view,
        "at": times.instant(view.at),
        "link": link,
        "link_at": times.instant(link.at) if link else None,
        "sides": receipt_sides(view),
        "headline": trade_headline(view),
        "verdict": verdict_text(view),
        "rate": exact_text(abs(view.rate)),
        "nav_key": "pool",
    }
    return render(request, "pools/trade.html", context)
