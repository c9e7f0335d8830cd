"""Celery tasks of billing: wake-ups only. Losing or doubling one changes when, never what."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task

from billing.metering import count_forecasts, meter_pool, settle_pool
from scheduling.models import Pool

log = structlog.get_logger(__name__)

BATCH = 5000
# A backlog must not keep the queue's other tasks waiting; the next wake-up goes on.
BATCHES = 4


@shared_task(name="billing.meter", ignore_result=True, acks_late=True)
def meter(*_: Any, **__: Any) -> int:
    """Meter and settle all pools, count price forecasts; return how many lines were written."""
    lines = 0
    for pool in Pool.objects.order_by("id"):
        try:
            for _batch in range(BATCHES):
                metered = meter_pool(pool.pk, limit=BATCH)
                lines += metered.lines
                if metered.events < BATCH:
                    break
            settle_pool(pool.pk)
            count_forecasts(pool.pk)
        except Exception:
            log.exception("meter.failed", pool=pool.name)
    return lines
