"""Fits learning curves to reported metrics of jobs, outside rounds.

A fit takes tens of milliseconds, so no round and no tick waits for it. A separate process fits a
few curves at a time and writes whole numbers, which the next snapshot reads. Which round uses a
forecast first depends on timing, but each snapshot stores the forecasts that its round used.
Source: docs/estimation.md.
"""

from datetime import datetime

import structlog
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from evenshare_core.units import ONE_MILLI
from scheduling.engine.clock import wall_now
from scheduling.models import Job, MetricHistory, StopForecast, criterion_of
from tenants.scopes import site_scope

# The maximum number of forecasts per call.
FITS_AT_ONCE = 16
# Refit if the newest iteration is 5 % higher than at the last fit, or as long as evaluations are
# few.
GROWTH_PERCENT = 105
FEW = 10
UNFIT = "the cap: no curve could be fitted to its evaluations"

log = structlog.get_logger(__name__)


def refit(*, most: int = FITS_AT_ONCE) -> int:
    """Renew the forecasts of jobs with new evaluations; return the number of renewed forecasts.

    No transaction is open while a curve is fitted. Two concurrent calls write the same forecasts,
    which does no harm.
    """
    with site_scope():
        due = list(due_histories()[:most])
    for history in due:
        forecast = forecast_of(history, at=wall_now())
        with site_scope():
            StopForecast.objects.bulk_create(
                [forecast], update_conflicts=True, unique_fields=["job"], update_fields=_FITTED
            )
    if due:
        log.info("refit.done", forecasts=len(due))
    return len(due)


def is_refit_due() -> bool:
    """Return whether a job has enough new evaluations for a new forecast."""
    with site_scope():
        return due_histories().exists()


_FITTED = [
    "iterations", "low", "high", "error_milli", "source", "note", "evaluations", "iteration",
    "families", "fitted_at",
]  # fmt: skip # a table


def due_histories() -> QuerySet[MetricHistory]:
    """Return the evaluations of jobs that may still run and whose forecast is missing or too old.

    Tenants take turns, each with its oldest forecast first, so that a tenant with many jobs delays
    no other.
    """
    has_moved = Q(iteration__gt=F("job__stop_forecast__iteration"))
    is_news = (
        Q(evaluations__lte=FEW)
        | Q(is_met=True)
        | Q(iteration__gte=F("job__stop_forecast__iteration") * GROWTH_PERCENT / 100)
    )
    longest_ago = (F("job__stop_forecast__fitted_at").asc(nulls_first=True), F("job_id").asc())
    return (
        MetricHistory.objects.filter(
            Q(job__stop_forecast__isnull=True) | (has_moved & is_news),
            evaluations__gt=0,
            job__state__in=Job.ACTIVE_STATES,
        )
        .annotate(turn=Window(RowNumber(), partition_by=F("tenant_id"), order_by=list(longest_ago)))
        .select_related("job")
        .order_by("turn", *longest_ago)
    )


def forecast_of(history: MetricHistory, *, at: datetime) -> StopForecast:
    """Return the forecast from a job's evaluations, in whole numbers.

    If no curve can be fitted, return the cap with a note, because a program's reports must not
    raise errors here.
    """
    # scipy takes half a second and 40 MB, which other users of these rows do not need.
    from evenshare_core.estimation.curves import estimate_stop  # noqa: PLC0415 - as said above

    job, points = history.job, history.as_points
    criterion = criterion_of(job)
    if criterion is None:
        raise ValueError(f"job {job.pk} has evaluations and no criterion")
    made = StopForecast(
        job=job, tenant_id=job.tenant_id, evaluations=len(points), iteration=points[-1].iteration,
        iterations=criterion.cap, low=min(criterion.cap, points[-1].iteration),
        high=criterion.cap, error_milli=ONE_MILLI, source=StopForecast.Source.CAP.value,
        note=UNFIT, families={}, fitted_at=at,
    )  # fmt: skip # rows of what belongs together
    try:
        stop = estimate_stop(points, criterion)
    except (ArithmeticError, ValueError) as error:
        log.warning("refit.unfit", job=job.pk, why=str(error))
        return made
    made.iterations, made.low, made.high = stop.iterations.amount, stop.low, stop.high
    made.error_milli, made.source = stop.iterations.error_milli, stop.iterations.source.value
    made.note = stop.note
    made.families = {
        name: round(weight * ONE_MILLI)
        for name, weight in stop.members
        if round(weight * ONE_MILLI)
    }
    return made
