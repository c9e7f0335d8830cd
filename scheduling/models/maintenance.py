"""Maintenance windows of nodes, and failures of a pool's rounds."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from scheduling.models.cluster import Node, Pool


class MaintenanceWindow(models.Model):
    """A period in which a node must not be used, in pool time.

    No lease is granted or renewed that could still hold the node's GPUs when the window starts.
    """

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="windows")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="windows")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=200, default="", blank=True)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("starts_at", "id")
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="window_not_empty"
            ),
        ]
        indexes = [models.Index(fields=["pool", "ends_at"], name="window_by_end")]


class RoundFailure(models.Model):
    """A pool whose rounds fail: since when (wall time), how often, and the last error.

    A pool whose last round succeeded has no row. Written by `scheduling.engine.failures`.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="failure"
    )
    first_at = models.DateTimeField(db_default=Now())
    at = models.DateTimeField(db_default=Now())
    count = models.PositiveIntegerField(default=1)
    error = models.CharField(max_length=400)
