"""How prices may go in the next hours, and how often such forecasts held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import F, Sum

from evenshare_core.money.fixed_point import to_credits
from evenshare_core.simulation.price_outlook import NoPriceBand
from scheduling.models import PriceForecast

# Why there is no forecast, as a sentence.
NO_FORECAST: Mapping[str, str] = {
    NoPriceBand.TOO_LITTLE_KNOWN.value: (
        "Too few jobs of this pool have ended to say how long jobs take."
    ),
    NoPriceBand.TOO_MUCH_WORK.value: (
        "The queue is too long to be simulated that far in the time there is."
    ),
    "missed": "More than half of the past prices were outside of such forecasts.",
    "passed": "The last forecast is over; the next one is made while the pool's clock runs.",
    "none": "None was made yet; one is made after the pool's first rounds.",
}
# Four of five are to be inside. Of two forecasts that were kept, fewer than half are no accident.
LEAST_COUNTED, LEAST_HIT_RATE = 48, 0.5


@dataclass(frozen=True, slots=True)
class ForecastPoint:
    """Credits per GPU-hour at an instant of pool time."""

    at: datetime
    p10: Decimal
    p50: Decimal
    p90: Decimal


@dataclass(frozen=True, slots=True)
class PriceForecastView:
    """The newest forecast of a GPU type, as of `round` at `at`; None where none was made.

    `points`: those that are still to come. Without any, `reason` says why. Of earlier forecasts
    under the same policy `counted` instants have passed, and at `hits` of them the posted price was
    from p10 to p90; where those are too few, there are no points either.
    """

    gpu_type: str
    round: int | None
    at: datetime | None
    points: tuple[ForecastPoint, ...]
    reason: str
    counted: int
    hits: int

    @property
    def why(self) -> str:
        """Why there is no forecast, as a sentence; "" where there is one."""
        return NO_FORECAST.get(self.reason, self.reason)

    @property
    def hit_rate(self) -> float | None:
        """The share of later posted prices that were inside; None while none was posted."""
        return self.hits / self.counted if self.counted else None


def price_forecasts(pool_id: int, *, now: datetime) -> dict[str, PriceForecastView]:
    """Return the newest forecast of each GPU type of a pool, by name. Two queries.

    `now`: pool time, before which instants are left out.
    """
    of_pool = PriceForecast.objects.filter(pool_id=pool_id)
    newest = of_pool.order_by("gpu_type_id", "-at", "-id").distinct("gpu_type_id")
    rows = list(newest.select_related("gpu_type"))
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
        views[name] = PriceForecastView(name, row.round, row.at, points, reason, counted, hits)
    return views


def no_forecast(gpu_type: str) -> PriceForecastView:
    """Return what there is of a type of which none was made."""
    return PriceForecastView(gpu_type, None, None, (), "none", 0, 0)


def _points(row: PriceForecast) -> list[ForecastPoint]:
    step = timedelta(seconds=row.step_s)
    return [
        ForecastPoint(row.at + step * number, *map(to_credits, amounts))
        for number, amounts in enumerate(zip(row.p10, row.p50, row.p90, strict=True), start=1)
    ]
