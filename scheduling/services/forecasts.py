"""Start forecasts: whose turn it is, what was lost, what became of past estimates.

Nothing here looks ahead: that is `scheduling.services.execute_forecast`, in a process of its own.
One runs at a time, of all pools together, and after it none begins for four times the CPU seconds
that it took, whatever came of it: so all of them take a fifth of one core at most.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, F, OuterRef, Subquery

from scheduling.engine.clock import read_clock, wall_now
from scheduling.models import Job, Pool, StartEstimate, StartForecast
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

REST_PER_CPU = 4
LEAST_REST = timedelta(seconds=10)  # a small pool need not be looked at more often
# Of pool time: a pool without a queue has prices that may move, and no start to be told.
REST_WITHOUT_QUEUE = timedelta(minutes=15)
REST_AFTER_FAILURE = timedelta(minutes=2)  # of its own pool; others need not wait for that
LOST = timedelta(seconds=60)
ORPHAN_FAILURE = "The worker that started it was stopped."
LOST_FAILURE = "Its process is gone or did not respond for a minute."
KEEP_ESTIMATES = timedelta(days=30)
KEEP_FORECASTS = timedelta(days=1)  # those of which no estimate is kept
State = StartForecast.State

# A start counts where a later round than the forecast's granted it, whatever the clocks say.
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
    """Begin a forecast if it is time for one; return (id, claim), or None.

    Of the pools where a job is queued and a round was decided since their last forecast, and of
    those without a queue whose prices were last forecast `REST_WITHOUT_QUEUE` ago on their clock,
    the one that was looked at longest ago.
    """
    with site_scope():
        now = wall_now()
        if StartForecast.objects.filter(state=State.RUNNING).exists():
            return None
        # One after the other, so the newest one's rest ends last.
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
        except IntegrityError:  # somebody else has begun one
            return None
    return row.pk, row.claim


def _is_due(pool: Any) -> bool:
    """Whether there may be something new: a round of a queue, or time of a pool that runs."""
    if pool.has_queue or pool.seen_at is None:
        return bool(pool.seen != pool.last)
    return bool(read_clock(pool.pk).pool_at - pool.seen_at >= REST_WITHOUT_QUEUE)


def _pools(now: datetime) -> Any:
    """Those that have had a round, without those whose newest forecast has just failed.

    `seen`: the round that the pool's newest forecast was of, at `seen_at` of pool time; `last`: the
    pool's last round.
    """
    queued = Job.objects.filter(pool=OuterRef("pk"), state=Job.State.PENDING, quarantine="")
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
    """Give up what runs without a sign of life; return how many."""
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

    `cpu_s`: what its process computed; None where nobody can ask it. Then it is taken to have
    computed all the time since it began, for it has one thread and cannot have done more.
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
    """What is noted of every forecast that ends: when, what it took, and how long all rest."""
    cpu_s = max(0.0, cpu_s)
    rest = max(LEAST_REST, timedelta(seconds=cpu_s * REST_PER_CPU))
    return {"ended_at": now, "cpu_ms": round(cpu_s * 1000), "rest_until": now + rest}


def mine(forecast_id: int, claim: str) -> Any:
    """The rows to write for a process: the one that it runs, or none any more."""
    return StartForecast.objects.filter(pk=forecast_id, state=State.RUNNING, claim=claim)


def beat_forecast(forecast_id: int, claim: str) -> bool:
    """Give a sign of life; return whether it is still wanted."""
    with site_scope():
        return bool(mine(forecast_id, claim).update(beat_at=wall_now()))


def is_forecast_wanted(forecast_id: int, claim: str) -> bool:
    """Whether a forecast still runs under this claim."""
    with site_scope():
        return bool(mine(forecast_id, claim).exists())


def settle_estimates(pool_id: int) -> None:
    """Note of the pool's kept estimates whether their jobs have started, or never will."""
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(_STARTED, [pool_id])
        cursor.execute(_GONE, [pool_id])


def drop_old_estimates() -> int:
    """Settle all pools' estimates and drop old forecasts; return how many went.

    A forecast and its estimates stay for a month of the wall's time; one of which none is kept for
    a day, or within the month for as long as it is the newest that was made of its pool.
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
    """How many rows of `forecasts` were deleted; Django counts those that go with them too."""
    return int(forecasts.delete()[1].get("scheduling.StartForecast", 0))
