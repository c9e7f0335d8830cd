"""Forecasts of the starts of queued jobs and of prices, made after a round, and their outcomes."""

from django.db import models
from django.db.models import F, Q

from scheduling.models.cluster import GpuType, Pool
from scheduling.models.jobs import Job
from tenants.models import Tenant


class StartForecast(models.Model):
    """A forecast for a pool's whole queue, made by its own process.

    `round` is the last round before it, `at` the pool time from which it starts. `until` is the
    pool time that all its simulations reached. The other times are wall time. `claim` names the
    process, which may write only as long as state and claim are unchanged. `beat_at` is the time of
    its last heartbeat. `cpu_ms` is the CPU time of its process or, if the process was lost, the
    time until this was noticed. No other forecast, of any pool, starts before `rest_until`.
    `facts`: the assumptions, as counts.
    """

    class State(models.TextChoices):
        """The state of a forecast. Done and failed forecasts never change again."""

        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="forecasts")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    claim = models.CharField(max_length=32)
    policy = models.SlugField(max_length=31, default="", blank=True)
    round = models.BigIntegerField(null=True, blank=True)
    at = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    error = models.CharField(max_length=600, default="", blank=True)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    cpu_ms = models.PositiveIntegerField(default=0)
    rest_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = [
            # Only one process at a time makes forecasts, for all pools together.
            models.UniqueConstraint(
                fields=["state"], condition=Q(state="running"), name="forecast_one_runs"
            ),
            models.CheckConstraint(
                condition=Q(state="running") ^ Q(ended_at__isnull=False),
                name="forecast_ended_or_runs",
            ),
            models.CheckConstraint(
                condition=~Q(state="done") | Q(at__isnull=False, round__isnull=False),
                name="forecast_done_says_of_what",
            ),
        ]
        indexes = [models.Index(fields=["pool", "-id"], name="forecast_by_pool")]


class StartEstimate(models.Model):
    """The estimated start of one job, computed at `at` (pool time).

    `raw_p50` and `raw_p90` are the values before correction. If `raw_p50` is null, `p50` was not
    corrected. If there is no estimate, `reason` states why. An estimate may lack only `p90`.
    Estimates that are `kept` stay for a month: the calibration page evaluates p50 and p90 once
    these times have passed. The pool's next forecast deletes the others.
    """

    class Fate(models.TextChoices):
        """The outcome of an estimate.

        `gone`: the job was cancelled, or ended without another start.
        """

        OPEN = "open", "open"
        STARTED = "started", "started"
        GONE = "gone", "gone"

    forecast = models.ForeignKey(StartForecast, on_delete=models.CASCADE, related_name="estimates")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="start_estimates")
    at = models.DateTimeField()
    p50 = models.DateTimeField(null=True, blank=True)
    p90 = models.DateTimeField(null=True, blank=True)
    raw_p50 = models.DateTimeField(null=True, blank=True)
    raw_p90 = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=31, default="", blank=True)
    kept = models.BooleanField(default=False)
    fate = models.CharField(max_length=16, choices=Fate.choices, default=Fate.OPEN)
    started_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["forecast", "job"], name="estimate_once_per_forecast"),
            models.CheckConstraint(
                condition=Q(p50__isnull=False) ^ ~Q(reason=""), name="estimate_or_reason"
            ),
            models.CheckConstraint(
                condition=Q(p90__isnull=True) | Q(p50__lte=F("p90")), name="estimate_p50_to_p90"
            ),
            models.CheckConstraint(
                condition=Q(fate="started") ^ Q(started_at__isnull=True),
                name="estimate_started_at",
            ),
        ]
        indexes = [
            # A job's page reads the newest estimate.
            models.Index(fields=["job", "-id"], name="estimate_by_job"),
            # The calibration page counts the estimates whose p90 has passed.
            models.Index(fields=["pool", "p90"], name="estimate_past", condition=Q(kept=True)),
            # The correction of forecasts uses the newest estimates.
            models.Index(fields=["pool", "-id"], name="estimate_newest", condition=Q(kept=True)),
            # Forecasts look up the outcomes of open estimates.
            models.Index(
                fields=["pool", "job"],
                name="estimate_open",
                condition=Q(kept=True, fate="open"),
            ),
        ]


class PriceForecast(models.Model):
    """The forecast price of a GPU type in a pool, made after a round. It contains no tenant's data.

    `p10`, `p50` and `p90` are micro-credits per GPU-hour at `at` + 1, 2, ... x `step_s` of pool
    time. If they are empty, `reason` states why. If the forecast is `kept`, `points` counts the
    times that have passed, and `hits` those at which the posted price was from p10 to p90.
    """

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="price_forecasts")
    gpu_type = models.ForeignKey(GpuType, on_delete=models.CASCADE, related_name="+")
    round = models.BigIntegerField()
    policy = models.SlugField(max_length=31)
    at = models.DateTimeField()
    step_s = models.PositiveIntegerField()
    p10 = models.JSONField(default=list)
    p50 = models.JSONField(default=list)
    p90 = models.JSONField(default=list)
    reason = models.CharField(max_length=31, default="", blank=True)
    kept = models.BooleanField(default=False)
    points = models.PositiveIntegerField(default=0)
    hits = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(hits__lte=F("points")), name="price_forecast_hits_of_points"
            ),
        ]
        indexes = [
            models.Index(fields=["pool", "gpu_type", "-at"], name="price_forecast_by_type"),
        ]
