"""When queued jobs are expected to start, as of a round, and what became of it."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from scheduling.models.cluster import GpuType, Pool
from scheduling.models.jobs import Job
from tenants.models import Tenant


class StartForecast(models.Model):
    """One look ahead at a pool's whole queue, by a process of its own.

    `round` is the last one before it, `at` the pool time that it starts from, `until` how far all
    of its runs came; the other times are of the wall. `claim` names the process: what it writes is
    written where state and claim are still as it knows them. `beat_at` is its last sign of life.
    `cpu_ms` is what its process computed; of one that was lost, all the time until that was
    noticed. No other forecast, of any pool, begins before `rest_until`. `facts`: the assumptions,
    counts only.
    """

    class State(models.TextChoices):
        """Where it is; done and failed ones never change again."""

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
            # One process at a time, of all pools together.
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
    """When one job was expected to start, as of `at` of pool time.

    `raw_p50` and `raw_p90` are those before they were corrected; without a `raw_p50`, p50 was not.
    Where `reason` is not empty there is no estimate, and it says why; `p90` alone may be missing
    too. Those that are `kept` stay for a month. Their p50 and their p90 are counted on the
    calibration page once that instant has passed. The others are deleted by the next forecast of
    the pool.
    """

    class Fate(models.TextChoices):
        """What became of it: `gone` is cancelled, or ended without another start."""

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
            # A job's page asks for its newest one.
            models.Index(fields=["job", "-id"], name="estimate_by_job"),
            # The calibration page counts those whose p90 has passed.
            models.Index(fields=["pool", "p90"], name="estimate_past", condition=Q(kept=True)),
            # Every forecast is corrected by the newest ones.
            models.Index(fields=["pool", "-id"], name="estimate_newest", condition=Q(kept=True)),
            # Every forecast looks up what became of those that are open.
            models.Index(
                fields=["pool", "job"],
                name="estimate_open",
                condition=Q(kept=True, fate="open"),
            ),
        ]


class PriceForecast(models.Model):
    """How the price of a GPU type may go, as of a round: the pool's own, nothing of one tenant.

    `p10`, `p50` and `p90` are micro-credits per GPU-hour at `at` + 1, 2, ... x `step_s` of pool
    time; where they are empty, `reason` says why. Of those that are `kept`, `points` instants have
    passed by now, and at `hits` of them the posted price was from p10 to p90.
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
