"""The price board: what a borrowed GPU-hour costs, and what it has cost over the last week."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors import price_history, prices_now
from portal.charts.explore.spans import DAY, older_days
from portal.pools.text.prices import price_board_row, price_headline
from portal.site.access import pool_or_404, signed_in
from portal.site.clocks import clocks
from tenants.scopes import site_scope

OLDER_POINTS = 150


@signed_in
@require_safe
def prices(request: HttpRequest, name: str) -> HttpResponseBase:
    """Present prices and those of the last seven days of pool time."""
    facts = pool_or_404(request, name)
    times = clocks(facts)
    now = times.now.pool_at
    with site_scope():
        present = prices_now(facts.id)
        board = [
            (
                point,
                price_history(facts.id, point.gpu_type, since=now - DAY, until=now),
                price_history(facts.id, point.gpu_type, **older_days(now, OLDER_POINTS)),
            )
            for point in present
        ]
    context = {
        "pool": facts,
        "board": [
            price_board_row(point, history, older, times, name) for point, history, older in board
        ],
        "headline": price_headline(present),
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/prices.html", context)
