"""Price bands of the next hours, computed together with start estimates.

The newest forecast of each pool is shown to all users. A forecast per hour of pool time is kept,
at most `KEPT` per GPU type. When prices are metered, `billing.metering.forecasts` counts the prices
that were within a kept forecast.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.simulation.present import Start
from evenshare_core.simulation.price_outlook import PriceOutlook, estimate_prices
from evenshare_core.simulation.starts import History
from evenshare_core.units import SECOND_US
from scheduling.models import GpuType, PriceForecast

POINTS, STEP = 24, timedelta(minutes=15)  # six hours of prices
KEEP_EVERY = timedelta(hours=1)
KEPT = 200


def look_at_prices(
    start: Start, history: History, rng: Random, stop: Callable[[int], bool]
) -> PriceOutlook:
    """Simulate the next hours' prices; see `evenshare_core.simulation.price_outlook`."""
    step_us = int(STEP.total_seconds()) * SECOND_US
    return estimate_prices(start, history, step_us=step_us, points=POINTS, rng=rng, stop=stop)


def keep_price_forecasts(snapshot: Snapshot, outlook: PriceOutlook) -> None:
    """Replace a pool's price forecasts by these, except those that are kept."""
    of_pool = PriceForecast.objects.filter(pool_id=snapshot.pool)
    of_pool.filter(kept=False).delete()
    at = from_us(snapshot.at_us)
    types = dict(GpuType.objects.values_list("name", "id"))
    for row in snapshot.prices:
        gpu_type = types[row.gpu_type]
        bands = outlook.bands.get(row.gpu_type, ())
        kept = of_pool.filter(gpu_type_id=gpu_type).order_by("-at")
        last = kept.values_list("at", flat=True).first()
        PriceForecast.objects.create(
            pool_id=snapshot.pool,
            gpu_type_id=gpu_type,
            round=snapshot.number - 1,
            policy=snapshot.policy,
            at=at,
            step_s=int(STEP.total_seconds()),
            p10=[band.p10_micro for band in bands],
            p50=[band.p50_micro for band in bands],
            p90=[band.p90_micro for band in bands],
            reason="" if outlook.reason is None else outlook.reason.value,
            kept=bool(bands) and (last is None or last <= at - KEEP_EVERY),
        )
        old = kept.filter(kept=True).values("pk")[KEPT:]
        PriceForecast.objects.filter(pk__in=list(old)).delete()
