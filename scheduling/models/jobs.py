"""Jobs, and the data that only the virtual executor and the trace feeder read."""

import uuid
from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from evenshare_core.domain.backoff import is_given_up
from evenshare_core.domain.reasons import Reason
from evenshare_core.units import ONE_MILLI
from scheduling.models.cluster import Pool
from scheduling.models.profiles import Profile
from tenants.models import Tenant


class Job(models.Model):
    """A training run; it needs `gpus` GPUs all at once. Times are pool time except `created_at`.

    `scheduling.engine` and `scheduling.services` change the state by compare-and-swap on (id,
    state, version).
    """

    class State(models.TextChoices):
        """A job's state. `stopping`: its lease was taken back and is being released."""

        PENDING = "pending", "waiting"
        RUNNING = "running", "running"
        STOPPING = "stopping", "stopping"
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    class JobClass(models.TextChoices):
        BEST_EFFORT = "best_effort", "best effort"
        STRICT_SLO = "strict_slo", "strict deadline"
        SOFT_SLO = "soft_slo", "soft deadline"

    class StopRule(models.TextChoices):
        """The comparison of a metric with its target; the job ends once it is true."""

        AT_LEAST = "at_least", "at least"
        AT_MOST = "at_most", "at most"

    class Hold(models.TextChoices):
        """Why a waiting job may not start; a job may have several holds."""

        TENANT = "tenant", "held by its tenant"
        OPERATOR = "operator", "held by an operator"
        IDLE = "idle", "held after idle GPUs"
        DEPENDENCY = "dependency", "waiting for another job"
        SWEEP = "sweep", "waiting for its turn in the sweep"

    class Session(models.TextChoices):
        """The kind of an interactive job: the server that runs in its lease."""

        NOTEBOOK = "notebook", "notebook"
        SHELL = "shell", "shell"

    ACTIVE_STATES = (State.PENDING, State.RUNNING, State.STOPPING)

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="jobs")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=120)
    comment = models.CharField(max_length=200, default="", db_default="", blank=True)
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True
    )
    submitted_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    source = models.CharField(max_length=31, default="web")
    command = models.JSONField(default=list, blank=True)
    environment = models.JSONField(default=dict, blank=True)

    gpus = models.PositiveIntegerField()
    cpus = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveBigIntegerField(default=0)
    gpu_types = ArrayField(models.SlugField(max_length=31), default=list, blank=True)
    profile = models.ForeignKey(
        Profile, on_delete=models.PROTECT, null=True, blank=True, related_name="jobs"
    )
    job_class = models.CharField(
        max_length=16,
        choices=JobClass.choices,
        default=JobClass.BEST_EFFORT,
        db_default=JobClass.BEST_EFFORT.value,
    )
    weight = models.PositiveIntegerField(default=1)
    max_price = models.DecimalField(max_digits=20, decimal_places=6, null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    deadline_steps = models.JSONField(
        null=True,
        blank=True,
        help_text="Pairs of a percentage of the time from submission to the deadline and the points"
        " for an end by then; null: the pairs of the job's class.",
    )
    utility = models.JSONField(null=True, blank=True)
    estimate_s = models.PositiveBigIntegerField(null=True, blank=True)
    estimate_source = models.CharField(max_length=31, default="", blank=True)
    iterations = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Total iterations; the maximum if a metric can stop the job earlier.",
    )
    stop_metric = models.CharField(max_length=63, default="", db_default="", blank=True)
    stop_rule = models.CharField(
        max_length=8, choices=StopRule.choices, default="", db_default="", blank=True
    )
    stop_value = models.DecimalField(max_digits=24, decimal_places=12, null=True, blank=True)

    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    reason_code = models.CharField(max_length=31, default="", blank=True)
    reason_round = models.BigIntegerField(null=True, blank=True)
    terms = models.PositiveIntegerField(default=0)
    leases_held = models.PositiveIntegerField(default=0)
    first_started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    cancel_asked_at = models.DateTimeField(null=True, blank=True)
    quarantine = models.CharField(
        max_length=400,
        default="",
        blank=True,
        help_text="Why scheduling skips the job; empty if it does not.",
    )
    losses = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        help_text="Consecutive losses of the job's process soon after its start.",
    )
    backoff_until = models.DateTimeField(
        null=True, blank=True, help_text="Earliest start of the job, in pool time."
    )
    received_gpu_us = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="GPU-time held, in micro-GPU-seconds; null until a round has counted its end.",
    )
    deserved_gpu_us = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Its part of the tenant's fair share until its end, in micro-GPU-seconds.",
    )
    progress = models.JSONField(null=True, blank=True, help_text="Progress that the job reports.")
    profiling_s = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Of a profiling run: it ends after this many seconds; 0 for other jobs.",
    )
    profiled_for = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="profiling_runs",
        help_text="Of a profiling run: the job that waits for the result; empty if no job waits.",
    )
    tags = ArrayField(models.SlugField(max_length=31), default=list, db_default=[], blank=True)
    priority = models.SmallIntegerField(
        default=0,
        db_default=0,
        help_text="Orders the jobs of one tenant only; higher first.",
    )
    holds = ArrayField(
        models.CharField(max_length=15, choices=Hold.choices),
        default=list,
        db_default=[],
        blank=True,
        help_text="Why the job may not start yet; empty if it may.",
    )
    not_before = models.DateTimeField(
        null=True, blank=True, help_text="Earliest start that its tenant wishes, in pool time."
    )
    eligible_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When its last hold ended, in pool time; null: it was never held.",
    )
    sweep = models.ForeignKey(
        "Sweep",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="jobs",
        db_index=False,  # `job_once_in_sweep` has it
    )
    sweep_index = models.PositiveIntegerField(
        null=True, blank=True, help_text="Its place among the jobs of its sweep, from 0."
    )
    parameters = models.JSONField(
        null=True, blank=True, help_text="Of a sweep's job: its parameters, and an array's index."
    )
    place_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Its arrival for rounds, after an exchange within its tenant; null: its own.",
    )
    session = models.CharField(
        max_length=15, choices=Session.choices, default="", db_default="", blank=True
    )
    session_idle_s = models.PositiveIntegerField(
        null=True, blank=True, help_text="Ends after this time without use; null: the default."
    )
    session_s = models.PositiveIntegerField(
        null=True, blank=True, help_text="Its time limit, over all leases; null: none."
    )
    session_shared = models.BooleanField(
        default=False, db_default=False, help_text="Members of its tenant may open it too."
    )
    version = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(session__in=("notebook", "shell"))
                | Q(
                    session="",
                    session_idle_s__isnull=True,
                    session_s__isnull=True,
                    session_shared=False,
                ),
                name="job_session_has_its_kind",
            ),
            models.CheckConstraint(condition=Q(gpus__gte=1), name="job_gpus_at_least_1"),
            models.CheckConstraint(
                condition=Q(priority__gte=-100, priority__lte=100), name="job_priority_bounded"
            ),
            models.CheckConstraint(
                condition=Q(holds=[]) | Q(state__in=("pending", "cancelled")),
                name="job_held_only_while_waiting",
            ),
            models.CheckConstraint(
                condition=Q(not_before__isnull=True)
                | ~Q(holds=[])
                | Q(eligible_at__isnull=False, eligible_at__gte=F("not_before")),
                name="job_arrives_not_before_its_time",
            ),
            models.CheckConstraint(condition=Q(weight__gte=1), name="job_weight_at_least_1"),
            models.CheckConstraint(
                condition=Q(max_price__isnull=True) | Q(max_price__gte=0),
                name="job_max_price_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(job_class="best_effort", deadline_at__isnull=True)
                | Q(job_class__in=("strict_slo", "soft_slo"), deadline_at__isnull=False),
                name="job_deadline_of_its_class",
            ),
            models.CheckConstraint(
                condition=Q(deadline_steps__isnull=True) | Q(job_class="soft_slo"),
                name="job_steps_of_a_soft_deadline",
            ),
            # A job without a utility has NULL and never an empty object, so that readers need to
            # check only one form.
            models.CheckConstraint(
                condition=Q(utility__isnull=True) | Q(utility__has_key="kind"),
                name="job_utility_has_its_kind",
            ),
            models.CheckConstraint(
                condition=Q(iterations__isnull=True) | Q(iterations__gte=1),
                name="job_iterations_at_least_1",
            ),
            models.CheckConstraint(
                condition=Q(stop_metric="", stop_rule="", stop_value__isnull=True)
                | (
                    ~Q(stop_metric="")
                    & Q(stop_rule__in=("at_least", "at_most"))
                    & Q(stop_value__isnull=False, iterations__isnull=False)
                ),
                name="job_metric_whole_and_capped",
            ),
            models.CheckConstraint(
                condition=Q(profiling_s=0, profiled_for__isnull=True)
                | Q(profiling_s__gte=1, gpus__lte=2, job_class="best_effort"),
                name="job_profiling_run_is_small",
            ),
            models.CheckConstraint(
                condition=Q(sweep__isnull=True, sweep_index__isnull=True)
                | Q(sweep__isnull=False, sweep_index__isnull=False),
                name="job_has_index_in_sweep",
            ),
            models.UniqueConstraint(
                fields=["sweep", "sweep_index"],
                condition=Q(sweep__isnull=False),
                name="job_once_in_sweep",
            ),
            models.UniqueConstraint(
                fields=["profile"],
                condition=Q(profiling_s__gt=0, state__in=("pending", "running", "stopping")),
                name="job_one_profiling_run_of_a_type",
            ),
        ]
        indexes = [
            # Snapshots read a pool's active jobs in order of arrival.
            models.Index(
                fields=["pool", "submitted_at", "id"],
                name="job_active_by_arrival",
                condition=Q(state__in=("pending", "running", "stopping")),
            ),
            # Snapshots read the jobs that ended since the last round.
            models.Index(fields=["pool", "ended_at"], name="job_by_end"),
            # Job lists of a tenant show the newest jobs first, with pages by key.
            models.Index(fields=["tenant", "-id"], name="job_by_tenant"),
            models.Index(fields=["tenant", "state", "-id"], name="job_by_tenant_state"),
            # Pages of a tenant's long queue list jobs without a position after those with one.
            models.Index(
                fields=["tenant", "pool", "submitted_at", "id"],
                condition=Q(state="pending"),
                name="job_queued_by_tenant",
            ),
            # Rounds release held jobs, of which a pool may have few among many that wait.
            models.Index(
                fields=["pool", "sweep"],
                condition=Q(state="pending") & ~Q(holds=[]),
                name="job_held",
            ),
            # Rounds and pages read the few profiling runs of a job type.
            models.Index(
                fields=["profile", "-id"],
                name="job_profiling_by_type",
                condition=Q(profiling_s__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_given_up(self) -> bool:
        """Whether the job failed because its process was lost too often in a row."""
        return self.state == self.State.FAILED and is_given_up(self.losses)

    @property
    def arrived_at(self) -> datetime:
        """When it arrived in the queue: at its submission, or when its last hold ended."""
        return self.eligible_at or self.submitted_at

    @property
    def is_held(self) -> bool:
        """Whether the job waits and may not start yet."""
        waits = self.state == self.State.PENDING
        return waits and (bool(self.holds) or self.reason_code == Reason.NOT_BEFORE)

    @property
    def is_active(self) -> bool:
        """Whether the job still waits or runs."""
        return self.state in self.ACTIVE_STATES


class VirtualWork(models.Model):
    """The true duration of a job in the virtual executor, in a table that snapshots do not read.

    Times are microseconds of pool time. `done_us` is the work done in ended leases. `token` names
    the running lease. It has run since `launched_us` (since 1970), at `speed_milli` thousandths of
    the speed on which `duration_us` is based. `stopped_us` is set when the lease is asked to stop.
    `last_number` is the newest of the job's leases that was launched or stopped; an older lease
    never starts. `iteration_us` is the duration of an iteration at the speed of `duration_us`; 0 if
    the job reports no iterations.
    """

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="virtual_work"
    )
    duration_us = models.PositiveBigIntegerField()
    done_us = models.PositiveBigIntegerField(default=0)
    token = models.CharField(max_length=80, default="", blank=True)
    launched_us = models.BigIntegerField(null=True, blank=True)
    stopped_us = models.BigIntegerField(null=True, blank=True)
    speed_milli = models.PositiveIntegerField(default=ONE_MILLI, db_default=ONE_MILLI)
    iteration_us = models.PositiveBigIntegerField(default=0, db_default=0)
    exit_code = models.SmallIntegerField(default=0)
    last_number = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        indexes = [
            # The executor reads the running jobs among all past jobs.
            models.Index(fields=["job"], name="work_running", condition=~Q(token="")),
        ]


class TraceFeed(models.Model):
    """The progress of replaying a trace file into a pool.

    `started_at` is the pool time of the trace's time 0 in cycle 0; cycle n is shifted by n x
    `length_s`. `held_back` counts the rounds in which the trace was held back because too many jobs
    waited.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="feed"
    )
    trace = models.CharField(max_length=120)
    started_at = models.DateTimeField()
    length_s = models.PositiveIntegerField()
    cycle = models.PositiveIntegerField(default=0)
    position = models.PositiveIntegerField(default=0)
    max_pending = models.PositiveIntegerField(default=2000)
    held_back = models.PositiveIntegerField(default=0)
