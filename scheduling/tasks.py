"""Celery tasks: wake-ups only. Losing or doubling every message changes latency alone."""

from __future__ import annotations

from typing import Any

import structlog
from celery import current_app, shared_task

from scheduling.engine.clock import clock_read, clock_tick, grid_instant
from scheduling.engine.housekeeping import old_rows_drop
from scheduling.engine.rounds import round_run
from scheduling.models import Pool, PoolFence

log = structlog.get_logger(__name__)


@shared_task(name="scheduling.tick", ignore_result=True)
def tick(**_: Any) -> int:
    """Wake the pools whose next grid instant has come; return how many.

    One static beat a second calls it. A pool that fails keeps nobody else waiting.
    """
    woken = 0
    for pool in Pool.objects.order_by("id"):
        try:
            now = clock_tick(pool.pk)
            checked = PoolFence.objects.values_list("last_checked_at", flat=True).get(pool=pool)
            due = checked is None or grid_instant(now, pool.round_s) > checked
            if due and not now.paused:
                current_app.send_task("scheduling.run_round", args=[pool.pk], expires=pool.round_s)
                woken += 1
        except Exception:
            log.exception("tick.failed", pool=pool.name)
    return woken


@shared_task(name="scheduling.run_round", ignore_result=True, acks_late=True)
def run_round(pool_id: int, **_: Any) -> str:
    """Run the pool's round if it is due; return the outcome."""
    return round_run(pool_id, now=clock_read(pool_id)).outcome.value


@shared_task(name="scheduling.housekeeping", ignore_result=True)
def housekeeping(**_: Any) -> None:
    """Drop what is kept for a limited time only."""
    old_rows_drop()
