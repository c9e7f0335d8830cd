"""Data of templates/jobs/compare.html: jobs as rows of parameters and results, and their curves."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from django.utils.text import Truncator
from django.utils.translation import gettext as _

from billing.selectors.usage import JobCost
from portal.charts.explore.chart import PageChart, distinct_names
from portal.charts.explore.curves import RunCurve, compared_chart
from portal.charts.glyphs import StateBadge
from portal.jobs.text.job import state_badge
from scheduling.models import Job
from scheduling.selectors.jobs.comparisons import COMMAND, Parameter
from scheduling.services.job_metrics import JobMetrics, MetricCurve

# Charts of one page, and points of all curves in a chart.
CHARTS, POINTS, POINTS_OF_CHART = 12, 200, 2000
MARK = 8
# Parameters and characters in the short name of a curve.
LABELLED, LABEL_MOST = 2, 24
# Metrics of which a lower value is better, by a word in their names.
_LOW = re.compile(r"loss|err|perplexity|ppl|nll|mse|mae|wer|cer|time|latency", re.IGNORECASE)


class MetricResult(NamedTuple):
    """A metric's last and best value; None if the job did not report it."""

    last: float | None
    best: float | None

    @property
    def last_text(self) -> str:
        return "" if self.last is None else f"{self.last:.4g}"

    @property
    def best_text(self) -> str:
        return "" if self.best is None else f"{self.best:.4g}"


@dataclass(frozen=True, slots=True)
class RunRow:
    """A job of a comparison: its parameters and results in the order of the columns."""

    job: Job
    name: str
    badge: StateBadge
    parameters: tuple[str, ...]
    results: tuple[MetricResult, ...]
    gpu_h: Decimal
    charge: Decimal

    @property
    def cells(self) -> list[str]:
        """Return the texts of the columns of the metrics."""
        return [text for one in self.results for text in (one.last_text, one.best_text)]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Jobs in rows; `parameters` and `metrics` name the columns, `lows` those with low bests."""

    rows: tuple[RunRow, ...]
    parameters: tuple[str, ...]
    metrics: tuple[str, ...]
    lows: frozenset[str]

    @property
    def heads(self) -> list[str]:
        """Return the columns of the metrics: the last value, and the best one."""
        last, lowest, highest = _("{metric}, last"), _("{metric}, lowest"), _("{metric}, highest")
        return [
            text.format(metric=name)
            for name in self.metrics
            for text in (last, lowest if name in self.lows else highest)
        ]


def points_of_each(jobs: int) -> int:
    """Return how many points of a curve a chart of several jobs shows."""
    return min(POINTS, POINTS_OF_CHART // max(1, jobs))


def compare(
    jobs: Sequence[Job],
    parameters: Sequence[Parameter],
    metrics: Sequence[JobMetrics],
    costs: Mapping[int, JobCost],
) -> RunComparison:
    """Return the table of jobs; all sequences are in the order of `jobs`."""
    by_name = [{curve.name: curve for curve in one.metrics} for one in metrics]
    names = sorted({name for one in by_name for name in one})
    lows = frozenset(name for name in names if _prefers_low(name, jobs))
    rows = tuple(
        RunRow(
            job=job,
            name=name,
            badge=state_badge(job.state, is_quarantined=bool(job.quarantine), is_held=job.is_held),
            parameters=tuple(one.values[place] for one in parameters),
            results=tuple(_result(curves.get(name), is_low=name in lows) for name in names),
            gpu_h=costs.get(job.pk, JobCost()).gpu_h,
            charge=costs.get(job.pk, JobCost()).charge,
        )
        for place, (job, name, curves) in enumerate(
            zip(jobs, run_names(jobs), by_name, strict=True)
        )
    )
    return RunComparison(rows, tuple(one.name for one in parameters), tuple(names), lows)


def run_names(jobs: Sequence[Job]) -> list[str]:
    """Return the names of jobs; jobs with the same name also get the start of their id."""
    return distinct_names([(job.name, str(job.uid)[:MARK]) for job in jobs])


def _prefers_low(name: str, jobs: Sequence[Job]) -> bool:
    """Return whether low values are best: as a job's stopping rule says, else by the name."""
    rules = {job.stop_rule for job in jobs if job.stop_metric == name}
    return rules == {Job.StopRule.AT_MOST} or (not rules and bool(_LOW.search(name)))


def _result(curve: MetricCurve | None, *, is_low: bool) -> MetricResult:
    if curve is None:
        return MetricResult(None, None)
    best = curve.lowest if is_low else curve.highest
    return MetricResult(curve.points[-1].value, best)


def parameter_names(jobs: Sequence[Job], parameters: Sequence[Parameter]) -> list[str]:
    """Return a short name for each job, "lr=0.1, seed=2"; the job's name if no parameter differs.

    Such a name has at most two parameters; a command is too long for it.
    """
    chosen = [one for one in parameters if one.name != COMMAND][:LABELLED]
    texts = [
        ", ".join(f"{one.name}={one.values[place]}" for one in chosen if one.values[place])
        for place in range(len(jobs))
    ]
    return [
        Truncator(text or job.name).chars(LABEL_MOST) for text, job in zip(texts, jobs, strict=True)
    ]


def compared_charts(
    compared: Sequence[tuple[Job, JobMetrics]],
    parameters: Sequence[Parameter],
    names: Sequence[str],
    *,
    axis: str,
) -> list[PageChart]:
    """Return the charts of these metrics, each with the curves of all jobs that report it."""
    jobs = [job for job, _metrics in compared]
    labels = parameter_names(jobs, parameters)
    whole = [
        name if label in name else f"{name}, {label}"
        for name, label in zip(run_names(jobs), labels, strict=True)
    ]
    charts = []
    for place, name in enumerate(names):
        runs = [
            RunCurve(whole[number], str(job.uid), number, curve, labels[number])
            for number, (job, one) in enumerate(compared)
            for curve in one.metrics
            if curve.name == name
        ]
        chart = compared_chart(name, runs, axis=axis, key=f"curve-{place}", file="compare")
        charts += [chart] if chart else []
    return charts
