"""The posted price of a GPU type over time, with its base; theta and use on hover."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.prices import PriceRow
from portal.charts.explore.chart import Label, PageChart, Series, axis_range, through
from portal.charts.explore.columns import column
from portal.charts.explore.looks import BASE, PRICE, QUOTA
from portal.charts.figures import NONE, credits_text
from scheduling.selectors.sharing.price_forecasts import PriceForecastRow

UNIT = gettext_noop("credits per GPU-hour")
LEAST = 0.2  # Minimum height of the axis, as a part of the highest price.


def forecast_chart(
    view: PriceForecastRow, price: Decimal, now: datetime, *, pool: str
) -> PageChart:
    """Draw the present price, and p10, p50 and p90 of simulated prices at each future instant."""
    points = [*view.points, *view.points[-1:]]
    keys = [now, *_until_the_step_ends([point.at for point in view.points])]
    rows = {
        "p90": [price, *(point.p90 for point in points)],
        "p50": [price, *(point.p50 for point in points)],
        "p10": [price, *(point.p10 for point in points)],
    }
    looks = {"p90": BASE, "p50": PRICE, "p10": QUOTA}
    heights = [float(value) for values in rows.values() for value in values]
    return PageChart(
        key=f"chart-price-forecast-{view.gpu_type}",
        title=_("Price of {type} in the next hours").format(type=view.gpu_type),
        text=_(
            "Four of five prices should lie within p10 to p90 of 19 simulated runs. An"
            " estimate, not a promise."
        ),
        series=tuple(
            Series(
                name,
                column(gettext_noop("{part}, credits per GPU-hour"), part=name),
                keys,
                values,
                looks[name],
                places=6,
            )
            for name, values in rows.items()
        ),
        y=axis_range(heights, least=max([*heights, 0.05]) * LEAST),
        unit=_(UNIT),
        file=f"price-forecast-{pool}-{view.gpu_type}",
    )


def _until_the_step_ends(instants: Sequence[datetime]) -> list[datetime]:
    """Return the instants and the end of the last step, which is as long as the step before."""
    lasts = instants[-1] - instants[-2] if len(instants) > 1 else timedelta()
    return [*instants, *(at + lasts for at in instants[-1:])]


def price_chart(
    gpu_type: str, history: Sequence[PriceRow], now: datetime, *, pool: str
) -> PageChart:
    """Draw prices as steps in time order; the last price holds until `now`."""
    rows = [*history, history[-1]] if history else []
    keys = through((row.posted_at for row in history), now) if history else []
    prices = [row.price for row in rows]
    bases = [row.base for row in rows]
    also = {
        "theta": [f"{row.theta:.3f}" for row in rows],
        gettext_noop("GPUs used"): [f"{row.used}" for row in rows],
        gettext_noop("all GPUs"): [f"{row.capacity}" for row in rows],
        **_queue(rows),
    }
    # Floats only for the axis; no amount is computed from them.
    heights = [float(price) for price in prices]
    shown = credits_text(prices[-1], 4) if prices else ""
    title = _("Price of {type}") if prices else _("No price of {type} yet")
    labels = (Label(shown, heights[-1], "var(--accent)"),) if heights else ()
    return PageChart(
        key=f"chart-price-{gpu_type}",
        title=title.format(type=gpu_type),
        text=_("Valid from one round to the next."),
        series=(
            Series(
                _("price"),
                column(gettext_noop("price of {type}, credits per GPU-hour"), type=gpu_type),
                keys,
                prices,
                PRICE,
                places=6,
                also=also,
            ),
            Series(
                _("base"),
                column(gettext_noop("base price, credits per GPU-hour")),
                keys,
                bases,
                BASE,
                places=6,
                shown=False,
            ),
        ),
        y=axis_range(heights, least=max([*heights, 0.05]) * LEAST),
        unit=_(UNIT),
        file=f"prices-{pool}-{gpu_type}",
        labels=labels,
    )


def _queue(rows: Sequence[PriceRow]) -> dict[str, list[str]]:
    """Return the queue's surcharge per row; empty if no row has one."""
    if all(row.surcharge is None for row in rows):
        return {}
    return {
        gettext_noop("GPUs queued"): [
            NONE if row.queued is None else f"{row.queued}" for row in rows
        ],
        gettext_noop("surcharge"): [
            NONE if row.surcharge is None else f"{row.surcharge:.6f}" for row in rows
        ],
    }
