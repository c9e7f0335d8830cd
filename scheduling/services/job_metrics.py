"""The curves of a job's metrics, and its links, as its program reports them."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import read_metrics
from scheduling.engine.executors.local_metrics import LinkRow, ReportedPoint, parse_metrics
from scheduling.models import Job
from scheduling.selectors.stored_texts import METRICS_FILE
from tenants.answers import Answer, about

# Points of one metric, and of all metrics together.
POINTS, POINTS_OF_ALL = 1000, 16_000

T = TypeVar("T")


class CurvePoint(Answer, frozen=True):
    """A metric's value after `step` steps."""

    step: int
    value: float
    elapsed_s: Annotated[
        float | None,
        about("Wall time since the job's first point, by the job's own clock; null: unknown."),
    ]


class MetricCurve(Answer, frozen=True):
    """A metric's points by step; first and last are always included."""

    name: str
    points: tuple[CurvePoint, ...]
    reported: Annotated[int, about("Number of points in the job's file.")]
    lowest: float
    highest: float

    @property
    def is_thinned(self) -> bool:
        return len(self.points) < self.reported


class JobMetrics(Answer, frozen=True, kw_only=True, rename={"is_thinned": "thinned"}):
    """The curves of a job's metrics over all its leases, and its links, by name."""

    COMPONENT = "JobMetricsAnswer"

    metrics: tuple[MetricCurve, ...] = ()
    links: tuple[LinkRow, ...] = ()
    is_thinned: Annotated[bool, about("Points between the first and the last are left out.")] = (
        False
    )
    left_out: Annotated[int, about("Metrics with unusable names, or after the first 64.")] = 0
    refused: Annotated[str, about("Why the job's file cannot be used; empty if it can.")] = ""


def reports_metrics(job: Job) -> bool:
    """Return whether jobs of this pool are programs, which can report metrics."""
    return executor_traits(job.pool.executor).keeps_files


def job_metrics(job: Job, *, points: int = POINTS, name: str = "") -> JobMetrics:
    """Return at most `points` points (2 or more) of each metric of a job, or of the one named."""
    if not reports_metrics(job):
        return JobMetrics()
    said = parse_metrics(read_metrics(job.pk))
    times = [
        point.at_ms for curve in said.series.values() for point in curve if point.at_ms is not None
    ]
    most = max(2, min(points, POINTS_OF_ALL // max(1, len(said.series))))
    curves = tuple(
        _curve(one, curve, most, min(times, default=0))
        for one, curve in said.series.items()
        if name in ("", one)
    )
    return JobMetrics(
        metrics=curves,
        links=said.links,
        is_thinned=said.is_thinned or any(curve.is_thinned for curve in curves),
        left_out=said.left_out,
        refused=METRICS_FILE.format(why=said.refused) if said.refused else "",
    )


def _curve(name: str, points: Sequence[ReportedPoint], most: int, begin_ms: int) -> MetricCurve:
    kept = tuple(
        CurvePoint(
            point.step,
            point.value,
            None if point.at_ms is None else (point.at_ms - begin_ms) / 1000,
        )
        for point in evenly(points, most)
    )
    values = [point.value for point in points]
    return MetricCurve(name, kept, len(points), min(values), max(values))


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` (2 or more) items at equal distances; the first and the last stay."""
    if len(items) <= most:
        return list(items)
    return [items[place * (len(items) - 1) // (most - 1)] for place in range(most)]
