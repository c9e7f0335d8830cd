"""What people's clients said that they verified."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scheduling.models.cluster import Pool
from tenants.models import Tenant, User


class Verification(models.Model):
    """A run of `evenshare round verify` or `statement verify`, as it told of itself. Append-only.

    A remark: nothing is trusted for it. `size` and `root` (hex) are the head that was shown to
    it, which was one of this log when it was said. `said_at` is wall time. Of rounds: `first` to
    `last`; of a statement: `since` to `until`, pool time. `checked` rounds, or amounts of a
    statement, were recomputed, and `findings` of what was looked at is wrong. `unproven`: how much
    that was asked for is not proven; null: an older client, which did not tell it.
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
            # The newest of a tenant, and of a person.
            models.Index(fields=["pool", "tenant", "kind", "-id"], name="verification_newest"),
            models.Index(fields=["user", "pool", "kind", "-id"], name="verification_of_person"),
        ]
