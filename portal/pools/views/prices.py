"""The price board: past, present and forecast prices of a borrowed GPU-hour.

Every posted price can be downloaded as a file.
"""

from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from billing.selectors.prices import (
    PriceRow,
    every_price,
    has_prices,
    price_history,
    price_in_round,
    prices_now,
)
from evenshare_core.units import COUNT_MAX
from portal.charts.explore.spans import DAY, WEEK
from portal.common.access import access, pool_or_404, signed_in
from portal.common.clocks import clocks, pool_now
from portal.common.days import read_days
from portal.common.files import csv_file, lines_asked, no_file
from portal.pools.text.labels import window_choices
from portal.pools.text.one_more import one_more_gpu
from portal.pools.text.posted import posted_context
from portal.pools.text.prices import COLUMNS, price_board_row, price_headline, timetable
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.price_forecasts import no_forecast, price_forecasts
from scheduling.selectors.tenants.prospects import prospects
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.quotas import pool_tenants

WINDOWS = {
    "day": DAY,
    "week": WEEK,
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
DEFAULT_WINDOW = "week"
# points of all charts: a page takes 150 ms at most
DAY_POINTS, OLDER_POINTS = 240, 180
LEAST_POINTS = 48  # points of one chart


@signed_in
@require_safe
def prices(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the prices now, in a chosen window of pool time, and the forecast."""
    facts = pool_or_404(request, name)
    times = clocks(facts)
    now = times.now.pool_at
    asked = request.GET.get("window", "")
    window = asked if asked in WINDOWS else DEFAULT_WINDOW
    first = now - WINDOWS[window]
    with site_scope():
        present = prices_now(facts.id)
        forecasts = price_forecasts(facts.id, now=now)
        board = [
            (
                point,
                price_history(
                    facts.id,
                    point.gpu_type,
                    since=now - DAY,
                    until=now,
                    points=max(LEAST_POINTS, DAY_POINTS // len(present)),
                ),
                _older(facts.id, point.gpu_type, first, now - DAY, share=len(present)),
            )
            for point in present
        ]
        tenants = pool_tenants(facts.id)
    rows = [
        price_board_row(
            *(point, history, older, times),
            pool=name,
            forecast=forecasts.get(point.gpu_type) or no_forecast(facts.name, point.gpu_type),
        )
        for point, history, older in board
    ]
    context = {
        "pool": facts,
        "board": rows,
        **timetable(rows),
        "window": window,
        "windows": window_choices(WINDOWS),
        **_one_more(request, facts, tenants, now),
        "headline": price_headline(present),
        "days": read_days(QueryDict(), now),
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/prices.html", context)


def _older(
    pool_id: int, gpu_type: str, first: datetime, until: datetime, *, share: int
) -> list[PriceRow]:
    if first >= until:
        return []
    points = max(LEAST_POINTS, OLDER_POINTS // share)
    return price_history(pool_id, gpu_type, since=first, until=until, points=points)


def _one_more(
    request: HttpRequest, facts: PoolFacts, tenants: frozenset[int], now: datetime
) -> dict[str, Any]:
    """Return the cost of one more GPU for a tenant of the viewer: `?tenant=`, else the first."""
    mine = [row for row in access(request).memberships if row.tenant_id in tenants]
    asked = request.GET.get("tenant", "")
    chosen = next((row for row in mine if row.slug == asked), mine[0] if mine else None)
    if chosen is None:
        return {"mine": [], "chosen": None, "one_more": []}
    with tenant_scope(chosen.tenant_id):
        types = prospects(facts.id, chosen.tenant_id, at=now)
    return {"mine": mine, "chosen": chosen, "one_more": one_more_gpu(types, facts.lease_s)}


@signed_in
@require_safe
def posted_price(request: HttpRequest, name: str, gpu_type: str, number: int) -> HttpResponseBase:
    """Show the posted price that a round's terms pay, with all its inputs."""
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
    """Return every price posted between two days as CSV, of one GPU type or of all."""
    facts = pool_or_404(request, name)
    days = read_days(request.GET, pool_now(facts).pool_at)
    gpu_type = request.GET.get("gpu_type", "")
    problems = dict(days.errors)
    points = []
    with site_scope():
        if gpu_type and not has_prices(facts.id, gpu_type):
            text = _("No price of it was posted in {pool}. Leave it empty for all types.")
            problems["gpu_type"] = text.format(pool=name)
        if not problems:
            points = every_price(
                facts.id,
                since=days.since,
                until=days.until,
                gpu_type=gpu_type,
                limit=lines_asked(),
            )
    if problems:
        return no_file(problems)
    of_type = f"-{gpu_type}" if gpu_type else ""
    return csv_file(
        f"prices-{name}{of_type}-{days.first}-{days.last}.csv",
        COLUMNS,
        points,
        hint=_("choose fewer days or one GPU type"),
    )
