"""Invitations of people to tenants, and the filters that a person keeps."""

import uuid

from django.db import models
from django.db.models import Q

from tenants.models.tenancy import Membership, Tenant, User


class SavedFilter(models.Model):
    """Filters of a tenant's list of jobs that a person keeps under a name, as a query of a URL."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_filters")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=40)
    query = models.CharField(max_length=600)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "tenant", "name"], name="saved_filter_once_by_name"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Invitation(models.Model):
    """An invitation to a tenant with a role, used at most once. Rows are kept.

    It is for `user`, or for the person who has its link: only the SHA-256 of the link's secret is
    stored. Times are wall time.
    """

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="invitations")
    role = models.CharField(max_length=16, choices=Membership.Role.choices)
    note = models.CharField(max_length=100, default="", blank=True)
    digest = models.CharField(max_length=64, unique=True)
    made_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(used_at__isnull=True) | Q(revoked_at__isnull=True),
                name="invitation_used_or_revoked",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "-id"],
                condition=Q(used_at__isnull=True, revoked_at__isnull=True),
                name="invitation_open_by_tenant",
            ),
        ]
