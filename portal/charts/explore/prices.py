"""The posted price of a GPU type over time, with its base; theta and use in the hover."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from billing.selectors import PostedPricePoint
from portal.charts.explore.chart import Label, PageChart, Series, axis_range, through
from portal.charts.explore.looks import BASE, PRICE
from portal.charts.figures import credits_text

UNIT = "credits per GPU-hour"
LEAST = 0.2  # of the highest price: the axis is at least so high


def price_chart(
    gpu_type: str, history: Sequence[PostedPricePoint], now: datetime, *, pool: str
) -> PageChart:
    """Steps in time order, the last one until `now`."""
    rows = [*history, history[-1]] if history else []
    keys = through((row.posted_at for row in history), now) if history else []
    prices = [row.price for row in rows]
    bases = [row.base for row in rows]
    also = {
        "theta": [f"{row.theta:.3f}" for row in rows],
        "GPUs used": [f"{row.used}" for row in rows],
        "GPUs in all": [f"{row.capacity}" for row in rows],
    }
    heights = [float(price) for price in prices]  # of the axis; no amount comes from them
    shown = credits_text(prices[-1], 4) if prices else ""
    title = f"Price of {gpu_type}, now {shown}" if prices else f"No price of {gpu_type} yet"
    labels = (Label(shown, heights[-1], "var(--accent)"),) if heights else ()
    return PageChart(
        key=f"chart-price-{gpu_type}",
        title=title,
        text=f"In {UNIT}. It holds from one round to the next. The base can be switched on.",
        series=(
            Series("price", f"price of {gpu_type}, {UNIT}", keys, prices, PRICE, places=6,
                   also=also),
            Series("base", f"base price, {UNIT}", keys, bases, BASE, places=6, shown=False),
        ),
        y=axis_range(heights, least=max([*heights, 0.05]) * LEAST),
        unit=UNIT,
        file=f"prices-{pool}-{gpu_type}",
        labels=labels,
    )  # fmt: skip
