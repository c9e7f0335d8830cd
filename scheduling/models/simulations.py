"""Simulations that operators requested, and their results."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from evenshare_core.units import ONE_MILLI
from scheduling.models.cluster import Pool


class Simulation(models.Model):
    """A simulation of a pool: its next hours under two policies, or its last days under several.

    `next_hours` compares the pool's own policy with another one. It starts at the pool time `at`,
    from the snapshot with the stored hash. `lease_lengths` repeats the last `hours` of pool time
    under the pool's own policy with several lease lengths; its only option is `restart_s`.
    `history` repeats the last `hours` before the pool time `at` under the pool's own policy and
    others. Its options are these `policies` and the `seed`; the stored hash is that of all its
    inputs. If `is_shown`, each tenant may see its own figures.

    All other times are wall time. `claim` names the process that runs it. State, progress and
    result are written only while state and claim are unchanged, so that an abandoned process
    writes nothing. `beat_at` is the time of its last heartbeat.
    """

    class Kind(models.TextChoices):
        """The simulated time: after the request, or before it."""

        NEXT_HOURS = "next_hours", "next hours"
        LEASE_LENGTHS = "lease_lengths", "lease lengths"
        HISTORY = "history", "history"

    class State(models.TextChoices):
        """The state of a simulation.

        Queued and running simulations are open; the state of all others never changes again.
        """

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    OPEN_STATES = (State.QUEUED, State.RUNNING)

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="simulations")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    kind = models.CharField(
        max_length=16,
        choices=Kind.choices,
        default=Kind.NEXT_HOURS,
        db_default=Kind.NEXT_HOURS.value,
    )
    policy = models.SlugField(max_length=31)
    options = models.JSONField(default=dict, blank=True)
    hours = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    progress_milli = models.PositiveSmallIntegerField(default=0)
    claim = models.CharField(max_length=32, default="", blank=True)
    at = models.DateTimeField(null=True, blank=True)
    snapshot_sha256 = models.CharField(max_length=64, default="", blank=True)
    result = models.JSONField(null=True, blank=True)
    is_shown = models.BooleanField(default=False, db_default=False)
    error = models.CharField(max_length=600, default="", blank=True)
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    beat_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = [
            models.CheckConstraint(
                condition=Q(hours__gte=1, hours__lte=168), name="simulation_hours_1_to_168"
            ),
            models.CheckConstraint(
                condition=Q(progress_milli__lte=ONE_MILLI), name="simulation_progress_to_1000"
            ),
            models.CheckConstraint(
                condition=Q(state__in=("queued", "running")) ^ Q(ended_at__isnull=False),
                name="simulation_ended_or_open",
            ),
            models.CheckConstraint(
                condition=~Q(state="done") | Q(result__isnull=False),
                name="simulation_done_has_result",
            ),
            models.CheckConstraint(
                condition=Q(is_shown=False) | Q(kind="history", state="done"),
                name="simulation_shown_is_a_finished_replay",
            ),
        ]
        indexes = [
            # A pool's page lists its simulations, newest first.
            models.Index(fields=["pool", "-id"], name="simulation_by_pool"),
            # The settings page shows the newest comparison of lease lengths.
            models.Index(
                fields=["pool", "-id"],
                name="simulation_of_lease_lengths",
                condition=Q(kind="lease_lengths"),
            ),
            # A tenant's page lists those that it may see.
            models.Index(
                fields=["pool", "-id"], name="simulation_shown", condition=Q(is_shown=True)
            ),
            # The worker looks up the open simulations every few seconds.
            models.Index(
                fields=["id"],
                name="simulation_open",
                condition=Q(state__in=("queued", "running")),
            ),
        ]

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN_STATES

    @property
    def progress_percent(self) -> int:
        """The simulated part, in whole per cent."""
        return self.progress_milli // 10
