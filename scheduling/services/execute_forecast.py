"""Executes a forecast: simulates ahead, and stores the start estimates and price bands.

No transaction is open and no row is locked while it computes. Callers run it in a separate process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import structlog
from django.db.models import Max

from evenshare_core.cli.collector import rare_collections
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.simulation.present import Start
from evenshare_core.simulation.start_correction import (
    Correction,
    Factors,
    PastEstimate,
    correction_by,
)
from evenshare_core.simulation.starts import (
    RUNS,
    EstimatedStart,
    Forecast,
    History,
    estimate_starts,
)
from evenshare_core.units import HOUR_US, SECOND_US
from scheduling.engine.clock import read_clock, wall_now
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import StartEstimate, StartForecast
from scheduling.selectors.jobs.work_left import work_done
from scheduling.services.forecasts import (
    ORPHAN_FAILURE,
    State,
    beat_forecast,
    ended_values,
    give_up_forecast,
    mine,
    settle_estimates,
)
from scheduling.services.price_forecasts import keep_price_forecasts, look_at_prices
from scheduling.services.start_history import read_history
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

HORIZON_US = 24 * HOUR_US
BUDGET_S = 6.0  # in CPU seconds, of all runs together; the forecast reports runs that were cut off
PRICE_BUDGET_S = 3.0  # in CPU seconds, additional, for the price runs
BEAT_S = 1.0
PAST_READ = 1_000  # the maximum number of past estimates read; the correction uses some of them


class ForecastUnwantedError(Exception):
    """The forecast was given up in the meantime."""


class ForecastGivenUpError(Exception):
    """The forecast cannot continue; the message says why."""


def execute_forecast(
    forecast_id: int,
    claim: str,
    *,
    timer: Callable[[], float],
    cpu: Callable[[], float],
    is_orphan: Callable[[], bool] = lambda: False,
) -> str:
    """Run a claimed forecast to its end; return its final state ("" if it is no longer wanted).

    `timer` returns seconds, `cpu` the CPU seconds of this process. `is_orphan` returns whether the
    worker that would end this process is gone.
    """
    with site_scope():
        row = mine(forecast_id, claim).select_related("pool").first()
    if row is None:
        return ""
    try:
        return _forecast(row, _Watch(row, timer, cpu, is_orphan), cpu)
    except ForecastUnwantedError:
        return ""
    except Exception as error:
        failure = str(error)
        if not isinstance(error, ForecastGivenUpError):
            log.exception("forecast.failed", forecast=forecast_id, pool=row.pool.name)
            failure = f"It failed: {type(error).__name__}: {error}."
        give_up_forecast(forecast_id, claim, failure, cpu_s=cpu())
        return State.FAILED


def _forecast(row: StartForecast, watch: _Watch, cpu: Callable[[], float]) -> str:
    pool_id = row.pool_id
    settle_estimates(pool_id)
    with site_scope():
        now = read_clock(pool_id)
        number, at = next_number(pool_id), next_instant(pool_id, now)
    snapshot = read_snapshot(pool_id, number=number, at=at)
    with site_scope():
        work = work_done(snapshot)  # remaining work is drawn at random
        history = read_history(pool_id, at)
        past = past_estimates(snapshot, now.pool_at)
    watch.begin(BUDGET_S)
    with rare_collections():
        forecast = estimate_starts(
            Start(snapshot, work),
            history,
            until_us=snapshot.at_us + HORIZON_US,
            rng=Random(f"{pool_id} {number}"),  # noqa: S311 - draws, not secrets
            correction=correction_by(past, snapshot.lease_us),
            stop=watch.stop,
        )
    facts = _facts(snapshot, history, forecast)
    watch.begin(PRICE_BUDGET_S)
    # Price runs have a separate random generator, so that they do not change the estimated starts.
    rng = Random(f"{pool_id} {number} prices")  # noqa: S311 - draws, not secrets
    with rare_collections():
        outlook = look_at_prices(Start(snapshot, work), history, rng, watch.stop)
    with site_scope():
        _keep(row, snapshot, forecast)
        keep_price_forecasts(snapshot, outlook)
        cpu_s = cpu()
        done = mine(row.pk, row.claim).update(
            state=State.DONE,
            policy=snapshot.policy,
            round=number - 1,
            at=at,
            until=from_us(forecast.until_us),
            facts=facts,
            **ended_values(wall_now(), cpu_s),
        )
        if not done:
            raise ForecastUnwantedError  # this rolls back the stored rows
    log.info("forecast.done", pool=row.pool.name, round=number - 1, cpu_s=round(cpu_s, 1))
    return State.DONE


def past_estimates(snapshot: Snapshot, now: datetime) -> list[PastEstimate]:
    """Return the outcomes of this policy's past estimates, newest first. A single query.

    A job that was cancelled before it started counts as having waited at least until then.
    """
    past = (
        StartEstimate.objects.filter(pool_id=snapshot.pool, kept=True, at__lt=now)
        .filter(forecast__policy=snapshot.policy)
        .order_by("-id")[:PAST_READ]
    )
    fields = ("at", "p50", "raw_p50", "raw_p90", "started_at", "job__ended_at")
    rows = []
    for at, p50, raw_p50, raw_p90, started_at, ended_at in past.values_list(*fields):
        at_us = to_us(at)
        seen = now if started_at is not None or ended_at is None else min(now, ended_at)
        rows.append(
            PastEstimate(
                to_us(raw_p50 or p50) - at_us,  # older estimates have no raw values
                None if raw_p90 is None else to_us(raw_p90) - at_us,
                None if started_at is None else to_us(started_at) - at_us,
                max(0, to_us(seen) - at_us),
            )
        )
    return rows


def latest_correction(snapshot: Snapshot) -> Correction:
    """Return the correction of the pool's newest forecast under this policy. A single query.

    Estimates settled since then affect only the next forecast.
    """
    done = StartForecast.objects.filter(pool_id=snapshot.pool, state=State.DONE)
    newest = done.order_by("-id").values_list("policy", "facts").first()
    facts = newest[1].get("corrections") if newest and newest[0] == snapshot.policy else None
    if not facts:  # no forecast yet, or one of an earlier version
        return Correction()
    short, long = (Factors(**facts[group]) for group in ("short", "long"))
    return Correction(snapshot.lease_us, short, long)


def _keep(row: StartForecast, snapshot: Snapshot, forecast: Forecast) -> None:
    """Replace the pool's estimates by these.

    For calibration, a job's first estimate is kept, and another one whenever the time since its
    submission has doubled. So each job has few kept estimates, for short and long waits. The time
    since submission includes the job's leases.
    """
    of_pool = StartEstimate.objects.filter(pool_id=row.pool_id)
    of_pool.filter(kept=False).delete()
    last = of_pool.filter(job__in=list(forecast.starts)).values_list("job")
    kept_at: dict[int, datetime] = dict(last.annotate(last=Max("at")))
    at = from_us(snapshot.at_us)
    rows = []
    for job in snapshot.jobs:
        estimate = forecast.starts.get(job.id)
        if estimate is None:
            continue
        kept = estimate.reason is None and _is_kept(job.submitted_us, at, kept_at.get(job.id))
        rows.append(_row(row, job.id, job.tenant, at, estimate, kept=kept))
    StartEstimate.objects.bulk_create(rows, batch_size=1000)


def _is_kept(submitted_us: int, at: datetime, last: datetime | None) -> bool:
    if last is None:
        return True
    return to_us(at) - submitted_us >= 2 * (to_us(last) - submitted_us)


def _row(
    row: StartForecast, job: int, tenant: int, at: datetime, estimate: EstimatedStart, *, kept: bool
) -> StartEstimate:
    p50_us, p90_us = estimate.p50_us, estimate.p90_us
    raw_p50_us, raw_p90_us = estimate.raw_p50_us, estimate.raw_p90_us
    return StartEstimate(
        forecast=row,
        pool_id=row.pool_id,
        tenant_id=tenant,
        job_id=job,
        at=at,
        p50=None if p50_us is None else from_us(p50_us),
        p90=None if p90_us is None else from_us(p90_us),
        raw_p50=None if raw_p50_us is None else from_us(raw_p50_us),
        raw_p90=None if raw_p90_us is None else from_us(raw_p90_us),
        reason="" if estimate.reason is None else estimate.reason.value,
        kept=kept,
    )


def _facts(snapshot: Snapshot, history: History, forecast: Forecast) -> dict[str, Any]:
    """Return the assumptions on the page: counts of the whole pool, never of a single tenant."""
    reasons = Counter(row.reason.value for row in forecast.starts.values() if row.reason)
    return {
        "runs": forecast.runs,
        "queued": len(forecast.starts),
        "running": len(snapshot.leases),
        "with_estimate": sum(job.estimate_us is not None for job in snapshot.jobs),
        "ended": len(history.ended),
        "arrivals": round(forecast.arrivals),
        "past_s": history.span_us // SECOND_US,
        "hours": HORIZON_US // HOUR_US,
        "corrections": {
            "short": _factors_json(forecast.correction.short),
            "long": _factors_json(forecast.correction.long),
        },
        "prices": {row.gpu_type: row.price_micro for row in snapshot.prices},
        "none": dict(sorted(reasons.items())),
    }


def _factors_json(factors: Factors) -> dict[str, Any]:
    return {"p50": round(factors.p50, 3), "p90": round(factors.p90, 3), "past": factors.past}


class _Watch:
    """Called after every simulated round: sends heartbeats and shares the budget among runs."""

    def __init__(
        self,
        row: StartForecast,
        timer: Callable[[], float],
        cpu: Callable[[], float],
        is_orphan: Callable[[], bool],
    ) -> None:
        self._row, self._timer, self._cpu, self._is_orphan = row, timer, cpu, is_orphan
        self._last_s, self._began_s, self._budget_s = timer(), 0.0, 0.0

    def begin(self, budget_s: float) -> None:
        """Start runs that have `budget_s` CPU seconds in total."""
        self._began_s, self._budget_s = self._cpu(), budget_s

    def stop(self, number: int) -> bool:
        """Return whether run `number` has used its part of the budget and earlier leftovers."""
        now_s = self._timer()
        if now_s - self._last_s >= BEAT_S:
            self._last_s = now_s
            if self._is_orphan():
                raise ForecastGivenUpError(ORPHAN_FAILURE)
            if not beat_forecast(self._row.pk, self._row.claim):
                raise ForecastUnwantedError
        return self._cpu() - self._began_s > self._budget_s * (number + 1) / RUNS
