"""Pools with their clocks and fences, GPU types, nodes and price settings."""

from decimal import Decimal

from django.db import models
from django.db.models import Case, F, Q, Value, When

from evenshare_core.policies.registry import DEFAULT
from tenants.language import gettext_lazy as _


class GpuType(models.Model):
    """A generation of GPUs; rank 0 is the slowest."""

    name = models.SlugField(max_length=31, unique=True)
    rank = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ("rank", "name")

    def __str__(self) -> str:
        return self.name


class Pool(models.Model):
    """Nodes that one policy schedules together, through one executor.

    `round_s` is wall time between rounds; `lease_s`, `grace_s` and `outage_grace_s` are pool time.
    A policy may vary a term from `least_lease_s` to `most_lease_s`; 0 means that `lease_s` is the
    bound. `profiling_s` is the total profiling time of a job type; 0 turns profiling off. `book`
    names the currency (`main` for pools at scale 1, another for scaled ones). If all GPUs of a
    lease idle for `idle_warn_s` of pool time, its tenant is warned. After `idle_return_s`, the
    lease ends at its next expiry. 0 turns either off.
    """

    class Visibility(models.TextChoices):
        """The form in which a tenant sees other tenants in rounds."""

        FULL = "full", _("tenants by name")
        PSEUDONYMS = "pseudonyms", _("tenants by pseudonym")
        OWN = "own", _("own rows and the hash")

    name = models.SlugField(max_length=63, unique=True)
    policy = models.SlugField(max_length=31, default=DEFAULT)
    options = models.JSONField(default=dict, blank=True)
    executor = models.SlugField(max_length=31, default="virtual")
    executor_options = models.JSONField(
        default=dict, db_default={}, blank=True, help_text="Options of the executor."
    )
    book = models.SlugField(max_length=31, default="main")
    round_s = models.PositiveIntegerField(default=10)
    lease_s = models.PositiveIntegerField(default=900)
    least_lease_s = models.PositiveIntegerField(default=0, db_default=0)
    most_lease_s = models.PositiveIntegerField(default=0, db_default=0)
    profiling_s = models.PositiveIntegerField(default=0, db_default=0)
    grace_s = models.PositiveIntegerField(default=30)
    outage_grace_s = models.PositiveIntegerField(default=3600)
    idle_warn_s = models.PositiveIntegerField(default=1800, db_default=1800)
    idle_return_s = models.PositiveIntegerField(default=0, db_default=0)
    seed = models.BigIntegerField(default=0)
    visibility = models.CharField(
        max_length=16, choices=Visibility.choices, default=Visibility.FULL
    )
    on_demand = models.BooleanField(
        default=False,
        help_text="A submission may trigger a round between two instants of the grid.",
    )
    source_dir = models.CharField(
        max_length=400, default="", blank=True, help_text="Folder in which local jobs start."
    )
    pause_unwatched_s = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(round_s__gte=1), name="pool_round_at_least_1s"),
            models.CheckConstraint(condition=Q(lease_s__gte=1), name="pool_lease_at_least_1s"),
            models.CheckConstraint(
                condition=Q(least_lease_s__lte=F("lease_s"))
                & (Q(most_lease_s=0) | Q(most_lease_s__gte=F("lease_s"))),
                name="pool_lease_within_bounds",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class PoolClock(models.Model):
    """A pool's clock: pool time = anchor_pool + (database now - anchor_wall) x scale.

    Pool time does not advance while `paused`. Only `scheduling.engine.clock` writes the row.
    `seen_wall` is the last tick. After a long gap without ticks, a scaled clock resumes from its
    last tick.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="clock"
    )
    anchor_wall = models.DateTimeField()
    anchor_pool = models.DateTimeField()
    scale = models.PositiveIntegerField(default=1)
    paused = models.BooleanField(default=False)
    pause_reason = models.CharField(max_length=31, default="", blank=True)
    seen_wall = models.DateTimeField()
    viewed_wall = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(scale__gte=1, scale__lte=3600), name="clock_scale_1_to_3600"
            ),
        ]


class PoolFence(models.Model):
    """The fence of a pool: the lock for writing to it, and the counters of its events and rounds.

    A round takes the fence and increments `token` if `until` has passed. Every write of the round
    locks this row at its token, so a stale holder writes nothing. The numbers from `next_event` and
    `next_round` have no gaps, because they are drawn under the same lock.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="fence"
    )
    token = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=120, default="", blank=True)
    until = models.DateTimeField()
    next_event = models.BigIntegerField(default=1)
    next_round = models.BigIntegerField(default=1)
    last_at = models.DateTimeField(null=True, help_text="Pool time of the last round.")
    last_checked_at = models.DateTimeField(
        null=True,
        help_text="Last instant of the round grid that was processed, with or without a round.",
    )
    nodes_asked_at = models.DateTimeField(
        null=True, help_text="When nodes were last read from the engine (wall time)."
    )


class PriceSetting(models.Model):
    """The operator's price of a GPU type: base x (theta^utilisation - 1) credits per GPU-hour.

    GPUs queued for borrowing may add a surcharge (ADR 0165) of at most `surcharge_cap` times the
    base; 0 turns it off. The surcharge moves by at most `surcharge_step` per cent of the base per
    round.
    """

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="price_settings")
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    base = models.DecimalField(max_digits=20, decimal_places=6, default=Decimal(1))
    theta = models.DecimalField(max_digits=12, decimal_places=3, default=Decimal(2))
    surcharge_cap = models.DecimalField(
        max_digits=6, decimal_places=3, default=Decimal(0), db_default=Decimal(0)
    )
    surcharge_step = models.DecimalField(
        max_digits=4, decimal_places=1, default=Decimal(5), db_default=Decimal(5)
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "gpu_type"], name="price_setting_once"),
            models.CheckConstraint(condition=Q(base__gte=0), name="price_base_not_negative"),
            models.CheckConstraint(condition=Q(theta__gte=1), name="price_theta_at_least_1"),
            models.CheckConstraint(
                condition=Q(surcharge_cap__gte=0, surcharge_step__gt=0, surcharge_step__lte=100),
                name="price_surcharge_in_bounds",
            ),
        ]


class Node(models.Model):
    """A server of a pool. Its slots 0 .. gpus-1 are the portal's own numbers, not device indices.

    A node without a pool was removed; past leases still name it. `state` is set by operators of the
    portal. `engine_state`, its reason and its start (wall time) come from the executor's engine.
    Neither overwrites the other. Whether the node gets new leases depends on `effective_state`,
    which combines both. `engine_trouble`: why the engine did not carry out an operator's `state`.
    """

    class State(models.TextChoices):
        """The operator's state: new leases go to nodes that are up."""

        UP = "up", "up"
        DRAINED = "drained", "drained"
        LOST = "lost", "lost"

    class EngineState(models.TextChoices):
        """The engine's state: it starts programs on nodes that are up."""

        UP = "up", "up"
        DRAINED = "drained", "drained"
        DOWN = "down", "down"

    # The audit log's name for a drain. Pages show the drain's reason.
    DRAIN_ACTION = "node.drained"

    pool = models.ForeignKey(
        Pool, on_delete=models.CASCADE, null=True, blank=True, related_name="nodes"
    )
    name = models.SlugField(max_length=63)
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    gpus = models.PositiveIntegerField()
    cpus = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveBigIntegerField(default=0)
    state = models.CharField(max_length=16, choices=State.choices, default=State.UP)
    engine_state = models.CharField(
        max_length=16, choices=EngineState.choices, default=EngineState.UP, db_default="up"
    )
    engine_reason = models.CharField(max_length=200, default="", db_default="", blank=True)
    engine_since = models.DateTimeField(null=True, blank=True)
    engine_trouble = models.CharField(max_length=200, default="", db_default="", blank=True)
    effective_state = models.GeneratedField(
        expression=Case(
            When(~Q(state="up"), then=F("state")),
            When(engine_state="drained", then=Value("drained")),
            When(engine_state="down", then=Value("lost")),
            default=Value("up"),
        ),
        output_field=models.CharField(max_length=16, choices=State.choices),
        db_persist=True,
    )

    class Meta:
        ordering = ("pool", "name")
        constraints = [
            models.UniqueConstraint(fields=["pool", "name"], name="node_name_once_per_pool"),
            models.CheckConstraint(
                condition=Q(gpus__gte=1, gpus__lte=1024), name="node_gpus_1_to_1024"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def audit_subject(self) -> str:
        """The name of the node in the audit log while it belongs to a pool."""
        return f"node {self.pool.name if self.pool else ''}/{self.name}"
