"""GPU-time that leases hold without using it, counted from the samples of their nodes."""

from django.db import models
from django.db.models import F, Q

from scheduling.models.cluster import Pool
from scheduling.models.leases import Lease
from tenants.models import Tenant


class IdleReading(models.Model):
    """Sums over a lease's samples; only `scheduling.engine.idle_gpus` writes them.

    `counted_ms`: the samples are counted until then (wall time since the start). `known_us` and
    `idle_us` are GPU-microseconds of pool time: sampled, and idle. All GPUs of the lease were idle
    from `idle_since` to `idle_until` (pool time), its last samples; null if not. `warned_at`:
    when its tenant was warned. `is_over`: the lease ended and everything is counted.
    """

    lease = models.OneToOneField(
        Lease, on_delete=models.PROTECT, primary_key=True, related_name="idle_reading"
    )
    counted_ms = models.BigIntegerField(default=0)
    known_us = models.BigIntegerField(default=0)
    idle_us = models.BigIntegerField(default=0)
    idle_since = models.DateTimeField(null=True, blank=True)
    idle_until = models.DateTimeField(null=True, blank=True)
    warned_at = models.DateTimeField(null=True, blank=True)
    read_at = models.DateTimeField(help_text="Wall time of the last reading.")
    is_over = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(idle_us__gte=0, idle_us__lte=F("known_us")),
                name="idle_reading_within_known",
            ),
        ]
        indexes = [
            models.Index(
                fields=["idle_since"],
                condition=Q(idle_since__isnull=False),
                name="idle_reading_now",
            ),
        ]


class IdleDay(models.Model):
    """A tenant's sampled and idle GPU-microseconds in a pool on a day of pool time (UTC)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    day = models.DateField()
    known_us = models.BigIntegerField(default=0)
    idle_us = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "pool", "day"], name="idle_day_once"),
            models.CheckConstraint(
                condition=Q(idle_us__gte=0, idle_us__lte=F("known_us")),
                name="idle_day_within_known",
            ),
        ]
