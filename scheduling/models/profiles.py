"""Job types of tenants, with their speeds on the GPU types of a pool."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduling.models.cluster import Pool
from tenants.models import Tenant


class Profile(models.Model):
    """One job type of a tenant in a pool.

    `speedups`: {GPU type: thousandths of the speed on the slowest type}. `priority` divides the
    tenant's weight among its job types (OEF 4.2.4). A measured profile names when and on which
    job it was measured.
    """

    class Source(models.TextChoices):
        """Where the speeds come from."""

        DECLARED = "declared", "declared by the tenant"
        MEASURED = "measured", "measured by the portal"
        PUBLISHED = "published", "from a published measurement"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="profiles")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="profiles")
    name = models.SlugField(max_length=63)
    speedups = models.JSONField()
    priority = models.PositiveIntegerField(default=1)
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.DECLARED)
    measured_at = models.DateTimeField(null=True, blank=True)
    measured_job = models.ForeignKey(
        "scheduling.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

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
