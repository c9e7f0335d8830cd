"""Estimates of when queued jobs start, made after a round, and how often they were right."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _

from evenshare_core.domain.reasons import Reason
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.simulation.starts import NoEstimate
from scheduling.models import Job, Pool, StartEstimate, StartForecast
from tenants.answers import Answer, Hidden, one_of
from tenants.language import gettext_noop, marked
from tenants.scopes import site_reading
from tenants.sql import fetch_rows

# Texts for the reasons for which there is no estimate.
NO_ESTIMATE: Mapping[str, str] = {
    NoEstimate.NEVER_FITS.value: gettext_noop(
        "It needs more GPUs than the pool can schedule at present."
    ),
    NoEstimate.BACKING_OFF.value: gettext_noop(
        "Its process was lost; it is unknown whether the next one will last."
    ),
    NoEstimate.TOO_LITTLE_KNOWN.value: gettext_noop(
        "Too few jobs of this pool have ended to estimate run times."
    ),
    NoEstimate.TOO_MUCH_WORK.value: gettext_noop(
        "The simulations reached their time limit: the queue is long or the server is busy."
    ),
    NoEstimate.PRICE_ABOVE_MAX.value: gettext_noop(
        "A borrowed GPU-hour costs more than its own or its tenant's maximum price."
    ),
    NoEstimate.REFUTED.value: gettext_noop(
        "The last estimate was wrong: the job should have started by now. The next estimate"
        " follows a new round."
    ),
    NoEstimate.BEYOND.value: gettext_noop(
        "It did not start in half or more of the simulated runs."
    ),
}
# Shown for REFUTED if the price rose above what the job or its tenant pays.
REFUTED_BY_PRICE = gettext_noop(
    "The last estimate was wrong: a GPU-hour costs more than the job's value or maximum price."
)
_OUTBID = (Reason.PRICE_ABOVE_VALUE, Reason.PRICE_ABOVE_MAX)
WINDOWS = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
STEPS = 12  # bars of the chart


class StartView(Answer, frozen=True, rename={"at": "as_of", "until": "simulated_until"}):
    """When a queued job may start (pool time), by simulations that begin with a round.

    The job started by `p50` in half of the simulations, and by `p90` in nine of ten. If only `p90`
    is null, it is later than `simulated_until`. If `reason` is not empty there is no reliable
    estimate, and `why` explains it.
    """

    COMPONENT = "StartRow"

    round: int
    at: datetime
    p50: datetime | None
    p90: datetime | None
    until: datetime
    reason: Annotated[str, one_of("", *NoEstimate)]
    why: str = ""
    facts: Hidden[Mapping[str, Any]] = msgspec.field(default_factory=dict)


def read_starts(now: Mapping[int, datetime], jobs: Collection[int]) -> dict[int, StartView]:
    """Return the estimates of the newest forecast of each pool, by job. At most two queries.

    `now`: pool time by pool, for the pools of the jobs. An estimate whose p90 is before `now` was
    wrong and is reported as refuted. A job that is not in the newest forecast is left out, even if
    an older forecast had it. Callers pass queued jobs: jobs that have started are not left out.
    """
    if not jobs:
        return {}
    # A single index lookup per pool: forecasts are kept for a month, at least ten seconds apart.
    done = StartForecast.objects.filter(pool=OuterRef("pk"), state=StartForecast.State.DONE)
    newest = Pool.objects.filter(pk__in=set(now)).values_list(
        Subquery(done.order_by("-id").values("pk")[:1]), flat=True
    )
    rows = StartEstimate.objects.filter(forecast__in=list(newest), job__in=list(jobs))
    shown = rows.select_related("forecast", "job")
    return {row.job_id: _view(row, now[row.pool_id]) for row in shown}


def first_start(pool_id: int, tenant_id: int, *, now: datetime) -> tuple[Job, StartView] | None:
    """Return the queued job of a tenant that is expected to start first. A single query.

    It has the earliest p50 in the pool's newest forecast, among the estimates whose p90 is after
    `now`. Return None if there is no such estimate.
    """
    done = StartForecast.objects.filter(pool=pool_id, state=StartForecast.State.DONE)
    queued = StartEstimate.objects.filter(
        forecast=Subquery(done.order_by("-id").values("pk")[:1]),
        tenant=tenant_id,
        job__state=Job.State.PENDING,
        job__quarantine="",
        job__holds=[],
        p50__isnull=False,
    ).exclude(p90__lte=now)
    row = queued.select_related("job", "forecast").order_by("p50", "p90", "job_id").first()
    return (row.job, _view(row, now)) if row else None


def _view(row: StartEstimate, now: datetime) -> StartView:
    forecast = row.forecast
    is_refuted = row.p90 is not None and row.p90 <= now
    reason = NoEstimate.REFUTED.value if is_refuted else row.reason
    return StartView(
        round=forecast.round or 0,
        at=row.at,
        p50=None if is_refuted else row.p50,
        p90=None if is_refuted else row.p90,
        until=forecast.until or row.at,
        reason=reason,
        why=_why(reason, row.job, forecast.facts),
        facts=forecast.facts,
    )


def no_estimate_text(reason: str) -> str:
    """Return why a job has no estimate; an unknown reason stays unchanged."""
    return _(NO_ESTIMATE[reason]) if reason in NO_ESTIMATE else reason


def _why(reason: str, job: Job, facts: Mapping[str, Any]) -> str:
    if reason == NoEstimate.REFUTED and job.reason_code in _OUTBID:
        return _(REFUTED_BY_PRICE)
    prices = facts.get("prices", {})  # from the snapshot; older forecasts have no prices
    accepted = {
        name: to_credits(prices[name]) for name in job.gpu_types or prices if name in prices
    }
    if reason != NoEstimate.PRICE_ABOVE_MAX or job.max_price is None or not accepted:
        return no_estimate_text(reason)
    price, name = min((price, name) for name, price in accepted.items())
    if price <= job.max_price:  # Otherwise the maximum price of the job's tenant is lower.
        return no_estimate_text(reason)
    of_any = _("A borrowed GPU-hour costs {price} credits, above its maximum of {max_price}.")
    of_type = _(
        "A borrowed GPU-hour of {gpu_type} costs {price} credits, above its maximum of {max_price}."
    )
    costs = (of_type if len(prices) > 1 else of_any).format(
        gpu_type=name, price=marked(str(price)), max_price=marked(str(job.max_price))
    )
    return " ".join((costs, _("It waits until the price falls or own quota is free.")))


@dataclass(frozen=True, slots=True)
class CalibrationStep:
    """Part of the window, with the number of estimates whose p90 passed in it.

    `by_p90`: how many of their jobs had started by p90. `of_p50` and `by_p50` are the same counts
    for p50.
    """

    since: datetime
    estimates: int
    by_p90: int
    of_p50: int
    by_p50: int

    @property
    def p90(self) -> float | None:
        """The share of starts by p90; None without estimates."""
        return self.by_p90 / self.estimates if self.estimates else None

    @property
    def p50(self) -> float | None:
        """The share of starts by p50; None without estimates."""
        return self.by_p50 / self.of_p50 if self.of_p50 else None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Counts of a pool's past start estimates that were right.

    An estimate counts for p50 or for p90 if that time passed in the window, unless its job ended
    before without another start. So p50 of a long estimate counts even if its p90 is in the future
    or missing. `jobs`: the number of jobs with a counted p90. `gone`: the number of estimates whose
    job ended before p90 without another start. `newest`: the last forecast, or None.
    """

    since: datetime
    until: datetime
    jobs: int
    gone: int
    steps: tuple[CalibrationStep, ...]
    newest: StartForecast | None

    @property
    def whole(self) -> CalibrationStep:
        """The counts of the whole window."""
        counts = ((one.estimates, one.by_p90, one.of_p50, one.by_p50) for one in self.steps)
        return CalibrationStep(self.since, *map(sum, zip(*counts, strict=True)))


# Join open estimates with leases here: their stored outcomes change only with the next forecast.
_COUNTS = """
WITH past AS (
    SELECT e.job_id, e.p50, e.p90, coalesce(e.started_at, s.started_at) AS started_at, j.ended_at
    FROM scheduling_startestimate e
    JOIN scheduling_job j ON j.id = e.job_id
    LEFT JOIN LATERAL (
        SELECT min(l.started_at) AS started_at FROM scheduling_lease l
        JOIN scheduling_startforecast f ON f.id = e.forecast_id
        WHERE e.fate = 'open' AND l.job_id = e.job_id AND l.granted_round > f.round
    ) s ON true
    WHERE e.pool_id = %(pool)s AND e.kept AND e.p50 <= to_timestamp(%(until)s)
          AND (e.p90 IS NULL OR e.p90 > to_timestamp(%(since)s))
), counted AS (
    SELECT level, job_id, due, started_at <= due AS held,
           started_at IS NULL AND ended_at IS NOT NULL AND ended_at <= due AS gone
    FROM past CROSS JOIN LATERAL (VALUES (50, p50), (90, p90)) AS levels (level, due)
    WHERE due > to_timestamp(%(since)s) AND due <= to_timestamp(%(until)s)
)
SELECT width_bucket(extract(epoch FROM due), %(since)s, %(until)s, %(steps)s) AS step,
       count(*) FILTER (WHERE level = 90 AND NOT gone),
       count(*) FILTER (WHERE level = 90 AND held),
       count(*) FILTER (WHERE level = 50 AND NOT gone),
       count(*) FILTER (WHERE level = 50 AND held),
       count(*) FILTER (WHERE level = 90 AND gone),
       array_agg(DISTINCT job_id) FILTER (WHERE level = 90 AND NOT gone)
FROM counted GROUP BY 1 ORDER BY 1
"""


def read_calibration(pool_id: int, until: datetime, window: timedelta) -> Calibration:
    """Return how often a pool's estimates whose p50 or p90 passed in a window were right.

    Jobs that did not start are counted too: otherwise the misses would be left out. The counts
    cover all tenants. Two queries.
    """
    since = until - window
    begin_s, end_s = since.timestamp(), until.timestamp()
    with site_reading():
        rows = fetch_rows(
            _COUNTS, {"pool": pool_id, "since": begin_s, "until": end_s, "steps": STEPS}
        )
        done = StartForecast.objects.filter(pool_id=pool_id, state=StartForecast.State.DONE)
        newest = done.order_by("-id").first()
    counts = [[0, 0, 0, 0] for _ in range(STEPS)]
    jobs: set[int] = set()
    gone = 0
    for step, *of_row, left, ids in rows:
        of_step = counts[min(step, STEPS) - 1]
        for index, count in enumerate(of_row):
            of_step[index] += count
        gone, jobs = gone + left, jobs | set(ids or ())
    steps = tuple(
        CalibrationStep(since + window * index / STEPS, *count)
        for index, count in enumerate(counts)
    )
    return Calibration(since, until, len(jobs), gone, steps, newest)
