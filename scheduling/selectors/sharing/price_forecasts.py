"""Forecasts of prices for the next hours, and how often they were right."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from django.db.models import F, Sum
from django.utils.translation import gettext as _

from evenshare_core.money.fixed_point import to_credits
from evenshare_core.simulation.price_outlook import NoPriceBand
from scheduling.models import PriceForecast
from scheduling.selectors.jobs.start_estimates import NO_ESTIMATE
from tenants.answers import Answer, about
from tenants.language import gettext_noop

# Texts for the reasons for which there is no forecast.
NO_FORECAST: Mapping[str, str] = {
    **{reason.value: NO_ESTIMATE[reason.value] for reason in NoPriceBand},
    "missed": gettext_noop("More than half of the past prices were outside of the forecast range."),
    "passed": gettext_noop(
        "The last forecast has expired; the next one follows while the pool's clock runs."
    ),
    "none": gettext_noop("No forecast yet; the first one follows the pool's first rounds."),
}
# Four of five prices should be between p10 and p90. A lower hit rate than this, over at least this
# many prices, is no coincidence.
LEAST_COUNTED, LEAST_HIT_RATE = 48, 0.5


class ForecastInstant(Answer, frozen=True):
    """Quantiles of the price at a time (pool time)."""

    at: datetime
    p10: Decimal
    p50: Decimal
    p90: Decimal


class PriceForecastRow(Answer, frozen=True):
    """The newest forecast of a GPU type's price."""

    pool: str
    gpu_type: str
    round: Annotated[int | None, about("The last round before the forecast.")]
    at: datetime | None
    points: tuple[ForecastInstant, ...]
    reason: Annotated[str, about("Why there are no points; else empty.")]
    counted: Annotated[
        int, about("Number of forecast prices that can be compared with posted prices.")
    ]
    hits: Annotated[int, about("How many of these posted prices were from p10 to p90.")]

    @property
    def why(self) -> str:
        """Why there is no forecast; "" if there is one."""
        return _(NO_FORECAST.get(self.reason, self.reason))

    @property
    def hit_rate(self) -> float | None:
        """The fraction of later posted prices between p10 and p90; None if none was posted yet."""
        return self.hits / self.counted if self.counted else None


def price_forecasts(pool_id: int, *, now: datetime) -> dict[str, PriceForecastRow]:
    """Return the newest forecast of each GPU type of a pool, by name. Two queries.

    `now`: pool time; parts of the forecasts before it are left out.
    """
    of_pool = PriceForecast.objects.filter(pool_id=pool_id)
    newest = of_pool.order_by("gpu_type_id", "-at", "-id").distinct("gpu_type_id")
    rows = list(newest.select_related("gpu_type", "pool"))
    counts = {
        (row["name"], row["policy"]): (row["counted"], row["inside"])
        for row in of_pool.filter(kept=True)
        .values("policy", name=F("gpu_type__name"))
        .annotate(counted=Sum("points"), inside=Sum("hits"))
    }
    views = {}
    for row in rows:
        name = row.gpu_type.name
        points = tuple(point for point in _points(row) if point.at >= now)
        counted, hits = counts.get((name, row.policy), (0, 0))
        reason = row.reason or ("" if points else "passed")
        if counted >= LEAST_COUNTED and hits < counted * LEAST_HIT_RATE:
            points, reason = (), "missed"
        views[name] = PriceForecastRow(
            row.pool.name, name, row.round, row.at, points, reason, counted, hits
        )
    return views


def no_forecast(pool: str, gpu_type: str) -> PriceForecastRow:
    return PriceForecastRow(pool, gpu_type, None, None, (), "none", 0, 0)


def _points(row: PriceForecast) -> list[ForecastInstant]:
    step = timedelta(seconds=row.step_s)
    return [
        ForecastInstant(row.at + step * number, *map(to_credits, amounts))
        for number, amounts in enumerate(zip(row.p10, row.p50, row.p90, strict=True), start=1)
    ]
