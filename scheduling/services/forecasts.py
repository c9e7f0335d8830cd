"""Start forecasts: the next pool in turn, lost processes, outcomes of past estimates.

The simulation is in `scheduling.services.execute_forecast` and runs in a separate process. A single
forecast runs at a time, over all pools. The next forecast starts after a pause of four times the
CPU seconds that it took, successful or not. So all forecasts take at most a fifth of one core.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, F, OuterRef, Subquery

from scheduling.engine.clock import read_clock, wall_now
from scheduling.models import Job, Pool, StartEstimate, StartForecast
from scheduling.selectors.stored_texts import ORPHANED
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

REST_PER_CPU = 4
LEAST_REST = timedelta(seconds=10)  # the minimum pause, which matters for small pools
# Pool time. Without a queue there are no starts to estimate, but prices may change.
REST_WITHOUT_QUEUE = timedelta(minutes=15)
# after a failure the same pool waits this long; other pools do not wait
REST_AFTER_FAILURE = timedelta(minutes=2)
LOST = timedelta(seconds=60)
ORPHAN_FAILURE = ORPHANED
LOST_FAILURE = "Its process is gone or did not respond for a minute."
KEEP_ESTIMATES = timedelta(days=30)
KEEP_FORECASTS = timedelta(days=1)  # for forecasts of which no estimate is kept
State = StartForecast.State

# A start counts only if its lease was granted in a later round than the forecast's, whatever the
# clocks show.
_STARTED = """
UPDATE scheduling_startestimate e SET fate = 'started', started_at = s.started_at
FROM (SELECT one.id, min(l.started_at) AS started_at
      FROM scheduling_startestimate one
      JOIN scheduling_startforecast f ON f.id = one.forecast_id
      JOIN scheduling_lease l ON l.job_id = one.job_id AND l.granted_round > f.round
      WHERE one.pool_id = %s AND one.kept AND one.fate = 'open' AND l.started_at IS NOT NULL
      GROUP BY one.id) s
WHERE s.id = e.id
"""
_GONE = """
UPDATE scheduling_startestimate e SET fate = 'gone' FROM scheduling_job j
WHERE e.pool_id = %s AND e.kept AND e.fate = 'open' AND j.id = e.job_id
      AND j.state IN ('succeeded', 'failed', 'cancelled')
"""


def claim_forecast() -> tuple[int, str] | None:
    """Start a forecast if one is due; return (id, claim), or None.

    A pool is due if a job is queued and a round was decided since its last forecast. A pool without
    a queue is due if its last price forecast is `REST_WITHOUT_QUEUE` old in pool time. The pool
    with the oldest forecast is first.
    """
    with site_scope():
        now = wall_now()
        if StartForecast.objects.filter(state=State.RUNNING).exists():
            return None
        # Forecasts run one after the other, so the pause of the newest ends last.
        newest = StartForecast.objects.order_by("-id").first()
        if newest is not None and newest.rest_until is not None and newest.rest_until > now:
            return None
        pool = next((row for row in _pools(now) if _is_due(row)), None)
        if pool is None:
            return None
        try:
            with transaction.atomic():
                row = StartForecast.objects.create(
                    pool_id=pool.pk, claim=uuid4().hex, started_at=now, beat_at=now
                )
        except IntegrityError:  # another process started one
            return None
    return row.pk, row.claim


def _is_due(pool: Any) -> bool:
    """Return whether a round was decided since the last forecast.

    Without a queue, return whether the last forecast is old.
    """
    if pool.has_queue or pool.seen_at is None:
        return bool(pool.seen != pool.last)
    return bool(read_clock(pool.pk).pool_at - pool.seen_at >= REST_WITHOUT_QUEUE)


def _pools(now: datetime) -> Any:
    """Return pools with at least one round, without those whose newest forecast has just failed.

    `seen`, `seen_at`: the round of the pool's newest forecast, and its pool time. `last`: the
    pool's last round.
    """
    queued = Job.objects.filter(
        pool=OuterRef("pk"), state=Job.State.PENDING, quarantine="", holds=[]
    )
    newest = StartForecast.objects.filter(pool=OuterRef("pk")).order_by("-id")
    failed = StartForecast.objects.filter(state=State.FAILED, ended_at__gt=now - REST_AFTER_FAILURE)
    return (
        Pool.objects.filter(fence__next_round__gt=1)
        .annotate(
            has_queue=Exists(queued),
            newest=Subquery(newest.values("pk")[:1]),
            seen=Subquery(newest.values("round")[:1]),
            seen_at=Subquery(newest.values("at")[:1]),
            last=F("fence__next_round") - 1,
        )
        .filter(~Exists(failed.filter(pk=OuterRef("newest"))))
        .order_by(F("newest").asc(nulls_first=True), "pk")
    )


def fail_lost_forecasts() -> int:
    """Give up running forecasts without a heartbeat; return their number."""
    with site_scope():
        lost = StartForecast.objects.filter(state=State.RUNNING, beat_at__lt=wall_now() - LOST)
        count = sum(give_up_forecast(row.pk, row.claim, LOST_FAILURE) for row in lost)
    if count:
        log.warning("forecast.lost", count=count)
    return count


def give_up_forecast(
    forecast_id: int, claim: str, failure: str, *, cpu_s: float | None = None
) -> bool:
    """End a running forecast as failed; return whether it still ran under this claim.

    `cpu_s`: the CPU seconds of its process, or None if unknown. Then the time since its start is
    used, an upper bound because the process has one thread.
    """
    with site_scope():
        row = mine(forecast_id, claim).first()
        if row is None:
            return False
        now = wall_now()
        used_s = (now - row.started_at).total_seconds() if cpu_s is None else cpu_s
        ended = ended_values(now, used_s)
        given_up = mine(forecast_id, claim).update(state=State.FAILED, error=failure[:600], **ended)
    return bool(given_up)


def ended_values(now: datetime, cpu_s: float) -> dict[str, Any]:
    """Return the columns of a forecast that ends: its end, its CPU time, and the pause after it."""
    cpu_s = max(0.0, cpu_s)
    rest = max(LEAST_REST, timedelta(seconds=cpu_s * REST_PER_CPU))
    return {"ended_at": now, "cpu_ms": round(cpu_s * 1000), "rest_until": now + rest}


def mine(forecast_id: int, claim: str) -> Any:
    """Return a query for the row that this claim's process may write; empty if it was given up."""
    return StartForecast.objects.filter(pk=forecast_id, state=State.RUNNING, claim=claim)


def beat_forecast(forecast_id: int, claim: str) -> bool:
    """Send a heartbeat; return whether the forecast is still wanted."""
    with site_scope():
        return bool(mine(forecast_id, claim).update(beat_at=wall_now()))


def is_forecast_wanted(forecast_id: int, claim: str) -> bool:
    """Return whether a forecast still runs under this claim."""
    with site_scope():
        return bool(mine(forecast_id, claim).exists())


def settle_estimates(pool_id: int) -> None:
    """Store whether the jobs of the pool's kept estimates started, or ended without a start."""
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(_STARTED, [pool_id])
        cursor.execute(_GONE, [pool_id])


def drop_old_estimates() -> int:
    """Settle all pools' estimates and delete old forecasts; return the number deleted.

    A forecast with kept estimates stays for 30 days of wall time. Other forecasts stay for a day;
    the newest of a pool stays for up to 30 days.
    """
    for pool_id in Pool.objects.values_list("id", flat=True):
        settle_estimates(pool_id)
    with site_scope():
        now = wall_now()
        ended = StartForecast.objects.exclude(state=State.RUNNING)
        kept = StartEstimate.objects.filter(forecast=OuterRef("pk"), kept=True)
        newest = StartForecast.objects.filter(pool=OuterRef("pool"), state=State.DONE)
        old = _drop(ended.filter(ended_at__lt=now - KEEP_ESTIMATES))
        bare = ended.filter(~Exists(kept), ended_at__lt=now - KEEP_FORECASTS).exclude(
            pk=Subquery(newest.order_by("-id").values("pk")[:1])
        )
        return old + _drop(bare)


def _drop(forecasts: Any) -> int:
    """Delete `forecasts`; return how many were deleted, without counting their dependent rows."""
    return int(forecasts.delete()[1].get("scheduling.StartForecast", 0))
