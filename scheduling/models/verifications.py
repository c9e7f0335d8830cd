"""Reports of clients about their verifications."""

from django.db import models
from django.db.models.functions import Now

from scheduling.models.cluster import Pool
from tenants.models import Tenant, User


class Verification(models.Model):
    """A run of `evenshare round verify` or `statement verify`, as the client reported it.

    Append-only. Nothing depends on this record. `size` and `root` (hex) are the head that the
    client used; the portal has checked that it was a head of its log. `said_at` is wall time. For
    rounds: `first` to `last`; for a statement: `since` to `until`, pool time. `checked` counts the
    recomputed rounds or amounts; `findings` counts the wrong ones. `unproven` counts the requested
    items without a proof; null if an older client did not report it.
    """

    class Kind(models.TextChoices):
        ROUNDS = "rounds"
        STATEMENT = "statement"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    uid = models.UUIDField(unique=True)
    said_at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=15, choices=Kind.choices)
    size = models.BigIntegerField()
    root = models.CharField(max_length=64)
    first = models.BigIntegerField(null=True)
    last = models.BigIntegerField(null=True)
    since = models.DateTimeField(null=True)
    until = models.DateTimeField(null=True)
    checked = models.PositiveIntegerField()
    findings = models.PositiveIntegerField()
    unproven = models.PositiveIntegerField(null=True)
    client = models.CharField(max_length=40)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(size__gte=1), name="verification_of_a_head_with_records"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    kind="rounds", first__gte=1, last__gte=models.F("first"),
                    since=None, until=None,
                )
                | models.Q(
                    kind="statement", first=None, last=None, until__gt=models.F("since"),
                ),
                name="verification_of_rounds_or_a_statement",
            ),
        ]  # fmt: skip # a table
        indexes = [
            # Lists show the newest report of a tenant and of a user.
            models.Index(fields=["pool", "tenant", "kind", "-id"], name="verification_newest"),
            models.Index(fields=["user", "pool", "kind", "-id"], name="verification_of_person"),
        ]
