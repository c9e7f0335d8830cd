"""Job types of tenants, with their speeds on the GPU types of a pool."""

from django.db import models
from django.db.models import Q

from evenshare_core.domain.averages import Average
from evenshare_core.domain.measured_speeds import MeasuredSpeed
from scheduling.models.cluster import Pool
from tenants.models import Tenant


class Profile(models.Model):
    """A job type of a tenant in a pool.

    `speedups`: {GPU type: thousandths of the speed on the slowest type}, which policies use.
    `declared` is the tenant's declaration; empty if it equals `speedups`. `measured` is derived
    from measurements: {GPU type: {"speed_milli", "spread_milli", "reports"}}; only
    `scheduling.engine.measure` writes it. `priority` divides the tenant's weight among its job
    types (OEF 4.2.4). `measured_at` and `measured_job`: when and on which job the used speeds were
    last measured. `past_run`: profiling runs up to this job id belong to an earlier declaration.
    """

    class Source(models.TextChoices):
        """The origin of the speeds in use."""

        DECLARED = "declared", "declared by the tenant"
        MEASURED = "measured", "measured by the portal"
        PUBLISHED = "published", "from a published measurement"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="profiles")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="profiles")
    name = models.SlugField(max_length=63)
    speedups = models.JSONField()
    declared = models.JSONField(default=dict, db_default={}, blank=True)
    measured = models.JSONField(default=dict, db_default={}, blank=True)
    priority = models.PositiveIntegerField(default=1)
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.DECLARED)
    measured_at = models.DateTimeField(null=True, blank=True)
    measured_job = models.ForeignKey(
        "scheduling.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    past_run = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        ordering = ("pool", "tenant", "name")
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "tenant", "name"], name="profile_name_once_per_tenant"
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=1), name="profile_priority_at_least_1"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def as_declared(self) -> dict[str, int]:
        """The speedups that were declared or published."""
        return dict(self.declared or self.speedups)

    @property
    def as_measured(self) -> dict[str, MeasuredSpeed]:
        """The measured speeds by GPU type; empty if nothing was measured."""
        return {kind: MeasuredSpeed(**one) for kind, one in self.measured.items()}


class Measurement(models.Model):
    """Recent averages of what a job type's jobs report (see `evenshare_core.domain.averages`).

    `iteration`: nanoseconds of pool time per iteration on `gpus` GPUs of a type, on one node or
    several. `resume`: microseconds from a process's start to the end of its first iteration.
    `suspend`: microseconds from the request to release its GPUs until it wrote its last file. These
    two averages are not separated by GPU type. `reports` counts since the average started,
    `iterations` since the first report, and `restarts` how often the average was started again. The
    fields `used_*` are the average that estimates of jobs use, which does not change with each
    report (`evenshare_core.estimation.jobs.settle`).
    """

    class Kind(models.TextChoices):
        """The averaged quantity."""

        ITERATION = "iteration", "time per iteration"
        RESUME = "resume", "time to resume"
        SUSPEND = "suspend", "time to suspend"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="measurements")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    gpu_type = models.SlugField(max_length=31, default="", blank=True)
    gpus = models.PositiveIntegerField(default=0)
    several_nodes = models.BooleanField(default=False)
    reports = models.PositiveIntegerField(default=0)
    iterations = models.PositiveBigIntegerField(default=0)
    mean = models.PositiveBigIntegerField(default=0)
    deviation = models.PositiveBigIntegerField(default=0)
    up_milli = models.PositiveIntegerField(default=0)
    down_milli = models.PositiveIntegerField(default=0)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    restarts = models.PositiveIntegerField(default=0)
    used_reports = models.PositiveIntegerField(default=0, db_default=0)
    used_mean = models.PositiveBigIntegerField(default=0, db_default=0)
    used_deviation = models.PositiveBigIntegerField(default=0, db_default=0)
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["profile", "kind", "gpu_type", "gpus", "several_nodes"],
                name="measurement_once_per_shape",
            ),
        ]

    @property
    def average(self) -> Average:
        return Average(self.reports, self.mean, self.deviation, self.up_milli, self.down_milli)

    @average.setter
    def average(self, average: Average) -> None:
        self.reports, self.mean, self.deviation, self.up_milli, self.down_milli = average

    @property
    def used(self) -> Average:
        """The average that estimates of jobs use."""
        return Average(self.used_reports, self.used_mean, self.used_deviation)

    @used.setter
    def used(self, average: Average) -> None:
        self.used_reports, self.used_mean, self.used_deviation, *_ = average


class RunRecord(models.Model):
    """The durations of a job type's newest runs on `gpus` GPUs, the newest last.

    `runs`: [{"held": {GPU type: microseconds that it held such GPUs}, "declared_s": seconds that
    its owner declared, or null}], of successful runs. Only `scheduling.engine.estimates` writes it.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="run_records")
    gpus = models.PositiveIntegerField()
    runs = models.JSONField(default=list)
    ended_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["profile", "gpus"], name="run_record_once_per_size"),
        ]


class MeasurementNote(models.Model):
    """A note for users on a job type's measurements; only the newest notes are kept.

    `at` is pool time; the figures in `data` depend on `kind`.
    """

    class Kind(models.TextChoices):
        CHANGED = "changed", "the reported speed changed, so the average starts again"
        REFUSED = "refused", "a report could not be used"
        USED = "used", "the speeds that policies use have changed"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="notes")
    job = models.ForeignKey(
        "scheduling.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    at = models.DateTimeField()
    kind = models.CharField(max_length=16, choices=Kind.choices)
    data = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["profile", "-id"], name="note_by_profile")]


class VirtualSpeeds(models.Model):
    """The true speeds of a job type in the virtual executor, in a table that snapshots do not read.

    `speedups` is as in `Profile`; an iteration takes `iteration_us` of pool time on the slowest
    type. A job type without a row runs as declared, and nothing is measured.
    """

    profile = models.OneToOneField(
        Profile, on_delete=models.CASCADE, primary_key=True, related_name="virtual_speeds"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    speedups = models.JSONField()
    iteration_us = models.PositiveBigIntegerField()
