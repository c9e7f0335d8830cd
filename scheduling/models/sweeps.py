"""Sweeps: jobs that one request submitted; and the jobs that a job waits for."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from scheduling.models.cluster import Pool
from scheduling.models.jobs import Job
from tenants.models import Tenant


class Sweep(models.Model):
    """Jobs of one request, of which at most `at_once` are free to start at any time.

    `submitted_at` and `cancel_asked_at` are pool time. `origin` is the sweep whose failed jobs this
    one runs again.
    """

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="sweeps")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="sweeps")
    name = models.CharField(max_length=63)
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True
    )
    submitted_at = models.DateTimeField()
    created_at = models.DateTimeField()
    spec = models.JSONField(help_text="The request as it was submitted.")
    at_once = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many of its jobs may be free at a time; null: all."
    )
    cancel_asked_at = models.DateTimeField(null=True, blank=True)
    origin = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="resubmissions"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(at_once__isnull=True) | Q(at_once__gte=1),
                name="sweep_at_least_1_at_once",
            ),
        ]
        indexes = [models.Index(fields=["tenant", "-id"], name="sweep_by_tenant")]

    def __str__(self) -> str:
        return self.name


class JobDependency(models.Model):
    """A job that another one waits for; both belong to one tenant."""

    class Condition(models.TextChoices):
        """The needed event of the other job."""

        AFTER_OK = "after_ok", "has succeeded"
        AFTER_ANY = "after_any", "has ended"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependencies")
    needs = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="dependents")
    condition = models.CharField(max_length=9, choices=Condition.choices)
    is_broken = models.BooleanField(
        default=False, db_default=False, help_text="The job was cancelled because of this one."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "needs"], name="dependency_once"),
            models.CheckConstraint(condition=~Q(job=models.F("needs")), name="dependency_of_other"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.condition} {self.needs_id}"
