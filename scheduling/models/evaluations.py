"""What jobs with a stopping metric report of it, and when they are expected to stop."""

from __future__ import annotations

from django.db import models

from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from scheduling.models.jobs import Job
from tenants.models import Tenant


class MetricHistory(models.Model):
    """The evaluations of a job's stopping metric, written by `scheduling.engine.evaluate` alone.

    `points`: [[iterations, metric]] in order, at most
    `evenshare_core.estimation.evaluations.HISTORY_MAX`; `evaluations` is how many these are, and
    `iteration` the last one's. `is_met`: one of them meets the criterion. `refused`: why a report
    of the job could not be used, the last time that one could not; empty: all could.
    """

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="metric_history"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    points = models.JSONField(default=list)
    evaluations = models.PositiveIntegerField(default=0)
    iteration = models.PositiveBigIntegerField(default=0)
    is_met = models.BooleanField(default=False)
    refused = models.CharField(max_length=200, default="", blank=True)

    @property
    def as_points(self) -> tuple[MetricPoint, ...]:
        """The evaluations as the core merges and fits them."""
        return tuple(MetricPoint(iteration, float(metric)) for iteration, metric in self.points)


class StopForecast(models.Model):
    """After how many iterations a job is expected to stop, by its evaluations so far.

    Whole numbers of `evenshare_core.estimation.curves.StopEstimate`: `iterations` is the median,
    `low` and `high` are met with chance 0.1 and 0.9; `source` is `fitted`, `measured` (the target
    was met) or `cap`, with `note` saying why. `families`: {curve: weight in thousandths}. Made of
    `evaluations` points, the last at `iteration`. Written by `scheduling.engine.refits` alone;
    `fitted_at` is of the wall.
    """

    class Source(models.TextChoices):
        """Where the number comes from."""

        MEASURED = "measured", "the target was met"
        FITTED = "fitted", "fitted curves"
        CAP = "cap", "the most iterations"

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="stop_forecast"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    iterations = models.PositiveBigIntegerField()
    low = models.PositiveBigIntegerField()
    high = models.PositiveBigIntegerField()
    error_milli = models.PositiveIntegerField()
    source = models.CharField(max_length=16, choices=Source.choices)
    note = models.CharField(max_length=200, default="", blank=True)
    evaluations = models.PositiveIntegerField()
    iteration = models.PositiveBigIntegerField()
    families = models.JSONField(default=dict)
    fitted_at = models.DateTimeField()


def criterion_of(job: Job) -> StopCriterion | None:
    """Return when a job's metric ends it; None: it has none."""
    if not job.stop_metric or job.stop_value is None or not job.iterations:
        return None
    return StopCriterion(
        float(job.stop_value), job.iterations, job.stop_rule == Job.StopRule.AT_MOST
    )
