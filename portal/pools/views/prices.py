"""The price board: what a borrowed GPU-hour costs, and what it has cost over the last week.

Every price that was posted is there as a file.
"""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors import (
    every_price,
    has_prices,
    price_history,
    price_in_round,
    prices_now,
)
from evenshare_core.units import COUNT_MAX
from portal.charts.explore.spans import DAY, older_days
from portal.pools.text.posted import posted_context
from portal.pools.text.prices import COLUMNS, price_board_row, price_headline, price_rows
from portal.site.access import pool_or_404, signed_in
from portal.site.clocks import clocks, pool_now
from portal.site.days import read_days
from portal.site.files import csv_file, no_file
from tenants.scopes import site_scope

OLDER_POINTS = 150
LINES_MOST = 100_000  # of a file


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
        "days": read_days(QueryDict(), now),
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/prices.html", context)


@signed_in
@require_safe
def posted_price(request: HttpRequest, name: str, gpu_type: str, number: int) -> HttpResponseBase:
    """The posted price that terms of one round pay, with all that it is computed from."""
    facts = pool_or_404(request, name)
    if number > COUNT_MAX:
        raise Http404
    with site_scope():
        points = price_in_round(facts.id, gpu_type, number)
        if not points and not has_prices(facts.id, gpu_type):
            raise Http404
    context = {"pool": facts, "gpu_type": gpu_type, "number": number, "nav_key": "pool"}
    if points:
        context |= posted_context(points[0], points[1:], clocks(facts))
    return render(request, "pools/posted_price.html", context)


@signed_in
@require_safe
def price_file(request: HttpRequest, name: str) -> HttpResponseBase:
    """Every price posted between two days as CSV, of one GPU type or of all."""
    facts = pool_or_404(request, name)
    days = read_days(request.GET, pool_now(facts).pool_at)
    gpu_type = request.GET.get("gpu_type", "")
    problems = dict(days.errors)
    points = []
    with site_scope():
        if gpu_type and not has_prices(facts.id, gpu_type):
            problems["gpu_type"] = f"None was ever posted in {name}: leave it out for all types."
        if not problems:
            points = every_price(
                facts.id,
                since=days.since,
                until=days.until,
                gpu_type=gpu_type,
                limit=LINES_MOST + 1,
            )
    if len(points) > LINES_MOST:
        problems["from"] = f"More than {LINES_MOST:,} prices: choose fewer days or one GPU type."
    if problems:
        return no_file(problems)
    of_type = f"-{gpu_type}" if gpu_type else ""
    return csv_file(
        f"prices-{name}{of_type}-{days.first}-{days.last}.csv", COLUMNS, price_rows(points)
    )
