"""Forecasts of when jobs stop by their metrics, and the metrics that they reported."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from scheduling.models import Job, MetricHistory, StopForecast, criterion_of
from scheduling.selectors.jobs.estimates import Percent
from tenants.answers import Answer, about, answer_of, one_of


class StopView(Answer, frozen=True, rename={"error_milli": "error_percent"}):
    """The expected number of iterations after which a job stops by its metric: the median."""

    COMPONENT = "StopEstimateRow"

    iterations: int
    low: Annotated[int, about("10 % quantile of the iteration at which it stops.")]
    high: Annotated[int, about("90 % quantile of the iteration at which it stops.")]
    error_milli: Annotated[Percent, about("Relative standard error.")]
    source: Annotated[
        EstimateSource,
        one_of(EstimateSource.MEASURED, EstimateSource.FITTED, EstimateSource.CAP),
        about("The met target, fitted curves, or the maximum of iterations."),
    ]
    note: Annotated[
        str, about("Why the maximum is used, or that the target was met; may be empty.")
    ]
    evaluations: Annotated[int, about("Number of evaluations.")]
    iteration: Annotated[int, about("Iteration of the last evaluation.")]


@dataclass(frozen=True, slots=True)
class MetricView:
    """A job's stopping metric: its criterion, the reported points and the forecast.

    `refused`: why a report could not be used, or empty.
    """

    metric: str
    criterion: StopCriterion
    points: tuple[MetricPoint, ...] = ()
    refused: str = ""
    forecast: StopView | None = None
    families: tuple[tuple[str, int], ...] = field(default=())


def read_stop_forecasts(jobs: Sequence[Job]) -> dict[int, StopView]:
    """Return the stop forecasts of the jobs that have one, by job id."""
    by_metric = [job.pk for job in jobs if job.stop_metric]
    if not by_metric:
        return {}
    return {row.job_id: _view(row) for row in StopForecast.objects.filter(job__in=by_metric)}


def read_metric(job: Job) -> MetricView | None:
    """Return a job's stopping metric with its forecast, or None if it has no metric."""
    criterion = criterion_of(job)
    if criterion is None:
        return None
    history = MetricHistory.objects.filter(job=job).first()
    forecast = StopForecast.objects.filter(job=job).first()
    return MetricView(
        job.stop_metric,
        criterion,
        () if history is None else history.as_points,
        "" if history is None else history.refused,
        None if forecast is None else _view(forecast),
        () if forecast is None else _families(forecast),
    )


def _families(row: StopForecast) -> tuple[tuple[str, int], ...]:
    """Return the curve families and their weights in thousandths, the largest weight first."""
    return tuple(sorted(row.families.items(), key=lambda one: (-one[1], one[0])))


def _view(row: StopForecast) -> StopView:
    return answer_of(StopView, row, source=EstimateSource(row.source))
