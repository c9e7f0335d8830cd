"""The price board: what a borrowed GPU-hour costs, and what it has cost over the last day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors import PricePoint, price_history, prices_now
from portal.charts.figures import credits_text, thousands
from portal.charts.notes import Addend, Note
from portal.charts.pricechart import PRICE_FORMULA, PriceStep, price_chart
from portal.site.access import pool_or_404, signed_in
from portal.site.clocks import Clocks, clocks
from tenants.scopes import site_scope

DAY = timedelta(hours=24)
HOUR = timedelta(hours=1)


@signed_in
@require_safe
def prices(request: HttpRequest, name: str) -> HttpResponseBase:
    """Present prices and those of the last 24 hours of pool time."""
    facts = pool_or_404(request, name)
    times = clocks(facts)
    now = times.now.pool_at
    with site_scope():
        present = prices_now(facts.id)
        board = [
            (point, price_history(facts.id, point.gpu_type, since=now - DAY, until=now))
            for point in present
        ]
    context = {
        "pool": facts,
        "board": [_type(point, history, times) for point, history in board],
        "headline": _headline(present),
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/prices.html", context)


def _headline(present: Sequence[PricePoint]) -> str:
    if not present:
        return "No price has been posted yet."
    parts = [f"{credits_text(point.price, 4)} credits for {point.gpu_type}" for point in present]
    if len(parts) == 1:
        return f"A borrowed GPU costs {credits_text(present[0].price, 4)} credits an hour."
    return f"An hour of a borrowed GPU costs {', '.join(parts)}."


def _type(point: PricePoint, history: Sequence[PricePoint], times: Clocks) -> dict[str, Any]:
    now = times.now.pool_at
    steps = [PriceStep(row.posted_at, row.price) for row in history]
    before = [row for row in history if row.posted_at <= now - HOUR]
    return {
        "now": point,
        "note": _note(point),
        "change": point.price - before[-1].price if before else None,
        "svg": price_chart(
            steps,
            now,
            label=f"Price of {point.gpu_type} over 24 hours, now {credits_text(point.price, 4)}",
        ),
        "hours": _hours(history, times),
    }


def _note(point: PricePoint) -> Note:
    return Note(
        f"Price of {point.gpu_type} from round {thousands(point.valid_from_round)} on",
        (
            Addend("base price", credits_text(point.base, 6)),
            Addend("theta", f"{point.theta:.3f}"),
            Addend("use", f"{thousands(point.used)} of {thousands(point.capacity)} GPUs"),
        ),
        Addend(PRICE_FORMULA, credits_text(point.price, 6)),
    )


def _hours(history: Sequence[PricePoint], times: Clocks) -> list[dict[str, Any]]:
    """The last price of each hour, newest first, with the cheapest and the dearest marked."""
    by_hour = {row.posted_at.replace(minute=0, second=0, microsecond=0): row for row in history}
    amounts = [row.price for row in by_hour.values()]
    ends = {min(amounts): "cheapest", max(amounts): "dearest"} if len(set(amounts)) > 1 else {}
    # What most hours have is no finding.
    marks = {
        price: word for price, word in ends.items() if 3 * amounts.count(price) <= len(amounts)
    }
    return [
        {
            "hour": times.instant(hour),
            "point": row,
            "mark": marks.get(row.price, ""),
            "posted_by": row.valid_from_round - 1,
        }
        for hour, row in sorted(by_hour.items(), reverse=True)
    ]
