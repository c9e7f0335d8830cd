"""Transparency logs: entries, hashes of complete subtrees, and public keys. Append-only.

The database itself enforces consecutive numbers of entries, and the hashes of their contents
(tenants/migrations/0001_guards.sql). Only its entries define a log's size.
"""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class TransparencyLog(models.Model):
    """A log of a pool's rounds, or of a book's transfers. `origin` is its name in its heads."""

    origin = models.CharField(max_length=200, unique=True)
    made_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.origin


class LogEntry(models.Model):
    """A record of a log, and its leaf hash."""

    log = models.ForeignKey(TransparencyLog, on_delete=models.PROTECT, related_name="+")
    index = models.BigIntegerField()
    record = models.BinaryField()
    leaf_hash = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["log", "index"], name="log_entry_once"),
            models.CheckConstraint(condition=Q(index__gte=0), name="log_entry_from_0"),
        ]


class LogNode(models.Model):
    """The hash of a complete subtree above the leaves: of 2^level entries from index * 2^level."""

    log = models.ForeignKey(TransparencyLog, on_delete=models.PROTECT, related_name="+")
    level = models.PositiveSmallIntegerField()
    index = models.BigIntegerField()
    hash = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["log", "level", "index"], name="log_node_once"),
            models.CheckConstraint(
                condition=Q(level__gte=1, level__lte=62, index__gte=0), name="log_node_in_a_tree"
            ),
        ]


class LogScrub(models.Model):
    """The progress of re-checking a log, and its known faults.

    `kind`: `entries` checks that the log is sound, `transfers` that the logged transfers are
    unchanged. `place` is the next entry to check. `size` and `root` (hex) are of the last seen log,
    which the log must extend. `faults`: `place` and `text` of each.
    """

    log = models.ForeignKey(TransparencyLog, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=15)
    place = models.BigIntegerField(default=0)
    size = models.BigIntegerField(default=0)
    root = models.CharField(max_length=64, default="")
    faults = models.JSONField(default=list)
    checked_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["log", "kind"], name="log_scrub_once"),
        ]


class LogKey(models.Model):
    """A public Ed25519 key that signs heads during a period of wall time.

    The newest row of a key is valid: to end a key, a row is added. Private keys are files
    (`tenants.transparency.keys`).
    """

    public = models.BinaryField()
    since = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(until__isnull=True) | Q(until__gte=F("since")), name="log_key_in_order"
            ),
        ]
