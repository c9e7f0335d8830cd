"""Leases, their slots and their terms.

Only `scheduling.engine` writes them: its modules `apply`, `observe` and `revoke`.
"""

from datetime import datetime

from django.db import models
from django.db.models import F, Q

from evenshare_core.domain.reasons import EndReason
from scheduling.models.cluster import GpuType, Node, Pool
from scheduling.models.jobs import Job
from tenants.models import Tenant


class Lease(models.Model):
    """The right of a job to hold GPUs without interruption. Times are pool time.

    `number` counts the job's leases from 1. `placement` is [[node id, GPUs], ...]. `term` is the
    current term's number; `own`, `borrowed` and `price` are fixed for that term (also in
    LeaseTerm). The expiry is the earliest time at which a round may take the GPUs.
    """

    class State(models.TextChoices):
        """Waiting: other leases still hold its GPUs. Launching: its program has not started."""

        WAITING = "waiting", "waiting for GPUs"
        LAUNCHING = "launching", "launching"
        RUNNING = "running", "running"
        STOPPING = "stopping", "stopping"
        ENDED = "ended", "ended"

    LIVE_STATES = (State.WAITING, State.LAUNCHING, State.RUNNING, State.STOPPING)

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="leases")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="leases")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="leases")
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State.choices)
    gpus = models.PositiveIntegerField()
    placement = models.JSONField()
    granted_round = models.BigIntegerField()
    granted_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()
    protected_until = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.CharField(
        max_length=31, choices=[(r.value, r.value) for r in EndReason], default="", blank=True
    )
    term = models.PositiveIntegerField(default=1)
    own = models.PositiveIntegerField()
    borrowed = models.PositiveIntegerField()
    price = models.DecimalField(max_digits=20, decimal_places=6)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="lease_number_once"),
            # At most one lease of a job holds GPUs. If a job is moved, its next lease waits until
            # the GPUs are released.
            models.UniqueConstraint(
                fields=["job"],
                condition=Q(state__in=("launching", "running", "stopping")),
                name="lease_one_held_per_job",
            ),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state="waiting"), name="lease_one_waiting_per_job"
            ),
            models.CheckConstraint(
                condition=Q(gpus=F("own") + F("borrowed")), name="lease_own_plus_borrowed"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True)
                | Q(started_at__isnull=True)
                | Q(ended_at__gte=F("started_at")),
                name="lease_ends_after_start",
            ),
        ]
        indexes = [
            models.Index(
                fields=["pool", "id"], name="lease_live_by_pool", condition=~Q(state="ended")
            ),
            # Snapshots read the leases that released their GPUs since the last round.
            models.Index(fields=["pool", "ended_at"], name="lease_by_end"),
            models.Index(fields=["job", "-number"], name="lease_by_job"),
            models.Index(fields=["tenant", "-id"], name="lease_by_tenant"),
            # A tenant's overview counts the preemptions of the last days.
            models.Index(fields=["tenant", "ended_at"], name="lease_by_tenant_end"),
        ]

    @property
    def since(self) -> datetime:
        """The start of its process, or the grant before that."""
        return self.started_at or self.granted_at

    @property
    def protected_s(self) -> float:
        """For how long after `since` no policy may end it, in pool seconds."""
        until = self.protected_until
        return (until - self.since).total_seconds() if until else 0.0


class LeaseSlot(models.Model):
    """A GPU slot of a lease: `planned` until the previous lease releases it, then `holding`."""

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="slots")
    node = models.ForeignKey(Node, on_delete=models.PROTECT)
    slot = models.PositiveSmallIntegerField()
    holding = models.BooleanField(default=False)
    planned = models.BooleanField(default=False)

    class Meta:
        constraints = [
            # This ensures that no two leases hold the same slot, even if the code has a bug.
            models.UniqueConstraint(
                fields=["node", "slot"], condition=Q(holding=True), name="slot_held_once"
            ),
            models.UniqueConstraint(
                fields=["node", "slot"], condition=Q(planned=True), name="slot_planned_once"
            ),
            models.UniqueConstraint(fields=["lease", "node", "slot"], name="slot_once_per_lease"),
        ]


class LeaseTerm(models.Model):
    """A lease's grant or one renewal: it fixes price, own and borrowed GPUs. Append-only.

    It starts at `starts_at` (for the first term, when the executor started the job) and lasts until
    the next term starts or the lease ends.
    """

    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="terms")
    number = models.PositiveIntegerField()
    round = models.BigIntegerField()
    starts_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    own = models.PositiveIntegerField()
    borrowed = models.PositiveIntegerField()
    price = models.DecimalField(max_digits=20, decimal_places=6)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "number"], name="term_once_per_lease"),
            models.CheckConstraint(condition=Q(price__gte=0), name="term_price_not_negative"),
        ]

    @property
    def lasts_s(self) -> float:
        """The length of the term in pool seconds."""
        return (self.expires_at - self.starts_at).total_seconds()


class IterationReading(models.Model):
    """The part of a live lease's reports that averages already include, as sums in pool time.

    `is_resumed`: the time to the first iteration is included. `is_refused`: a report of this lease
    could not be used, and a note states this.
    """

    lease = models.OneToOneField(
        Lease, on_delete=models.CASCADE, primary_key=True, related_name="reading"
    )
    iterations = models.PositiveBigIntegerField(default=0)
    time_us = models.PositiveBigIntegerField(default=0)
    is_resumed = models.BooleanField(default=False)
    is_suspended = models.BooleanField(default=False)
    is_refused = models.BooleanField(default=False)
