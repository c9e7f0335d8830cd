"""Requests of tenants for other quotas."""

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tenants.models.tenancy import AuditRecord, Tenant, User


class QuotaChangeRequest(models.Model):
    """A tenant's request for a quota of `gpus` of a type in a pool; an operator decides it.

    The quota starts with the approval, and ends at `until` (pool time; without end if None). Other
    times are wall time. `quota_gpus`: the quota when it was requested, 0 without one. An approval
    may give another number, `approved_gpus`. `record`: the audit record of the changed quota, None
    if the quota already was as approved. `decided_by` of a withdrawn request is its tenant's
    manager.
    """

    class State(models.TextChoices):
        """The state of a request."""

        OPEN = "open", "waits for a decision"
        APPROVED = "approved", "approved"
        DECLINED = "declined", "declined"
        WITHDRAWN = "withdrawn", "withdrawn"

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey("scheduling.Pool", on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey("scheduling.GpuType", on_delete=models.PROTECT, related_name="+")
    gpus = models.PositiveIntegerField()
    quota_gpus = models.PositiveIntegerField()
    until = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=200)
    asked_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=16, choices=State.choices, default=State.OPEN)
    approved_gpus = models.PositiveIntegerField(null=True)
    answer = models.CharField(max_length=200, default="", blank=True)
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    record = models.ForeignKey(AuditRecord, on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = [
            # Two open requests for the same quota could not both be approved.
            models.UniqueConstraint(
                fields=["tenant", "pool", "gpu_type"],
                condition=Q(state="open"),
                name="quota_request_open_once",
            ),
            models.CheckConstraint(condition=Q(gpus__gte=1), name="quota_request_of_a_gpu"),
            models.CheckConstraint(
                condition=Q(approved_gpus__isnull=True) | Q(approved_gpus__gte=1),
                name="quota_request_approves_a_gpu",
            ),
            models.CheckConstraint(
                condition=Q(
                    state="open",
                    decided_by__isnull=True,
                    decided_at__isnull=True,
                    approved_gpus__isnull=True,
                    record__isnull=True,
                )
                | Q(
                    state="approved",
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    approved_gpus__isnull=False,
                )
                | Q(
                    state__in=["declined", "withdrawn"],
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    approved_gpus__isnull=True,
                    record__isnull=True,
                ),
                name="quota_request_is_decided_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="quota_request_by_tenant"),
            models.Index(fields=["state", "-id"], name="quota_request_by_state"),
        ]
