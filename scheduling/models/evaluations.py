"""Reported evaluations of jobs with a stopping metric, and forecasts of their end."""

from django.db import models

from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from scheduling.models.jobs import Job
from tenants.models import Tenant


class MetricHistory(models.Model):
    """The evaluations of a job's stopping metric; only `scheduling.engine.evaluate` writes them.

    `points`: [[iterations, metric]] in order, at most
    `evenshare_core.estimation.evaluations.HISTORY_MAX`. `evaluations` is the number of points, and
    `iteration` the number of iterations at the last point. `is_met`: a point meets the criterion.
    `refused`: why the last unusable report of the job was refused; empty if all reports could be
    used.
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
        """The evaluations as objects of the core library."""
        return tuple(MetricPoint(iteration, float(metric)) for iteration, metric in self.points)


class StopForecast(models.Model):
    """The number of iterations after which a job is expected to stop, from its evaluations so far.

    The fields of `evenshare_core.estimation.curves.StopEstimate`, in whole numbers. `iterations` is
    the median; the job stops by `low` with probability 0.1, by `high` with probability 0.9.
    `source` is `fitted`, `measured` (the target was met) or `cap`, with the reason in `note`.
    `families`: {curve: weight in thousandths}. The forecast is based on `evaluations` points, the
    last of them at `iteration`. Only `scheduling.engine.refits` writes it; `fitted_at` is wall
    time.
    """

    class Source(models.TextChoices):
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
    """Return the criterion by which a metric ends the job, or None if the job has no metric."""
    if not job.stop_metric or job.stop_value is None or not job.iterations:
        return None
    return StopCriterion(
        float(job.stop_value), job.iterations, job.stop_rule == Job.StopRule.AT_MOST
    )
