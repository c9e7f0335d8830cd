"""Jobs of an imported trace that are not submitted yet."""

from django.db import models

from scheduling.models.cluster import Pool
from tenants.models import Tenant


class Arrival(models.Model):
    """A job that will be submitted at a later pool time.

    The round at that time creates the Job and deletes the row. Counts, lists and policies therefore
    never see future jobs. `extra` holds the optional fields of
    `evenshare_core.simulation.trace_formats.OPTIONAL`.
    """

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="arrivals")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()
    name = models.CharField(max_length=120)
    gpus = models.PositiveIntegerField()
    duration_us = models.PositiveBigIntegerField()
    extra = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(gpus__gte=1), name="arrival_asks_a_gpu"),
        ]
        indexes = [
            # Rounds take the due rows in this order. No query filters them by tenant.
            models.Index(fields=["pool", "at", "id"], name="arrival_by_instant"),
        ]
