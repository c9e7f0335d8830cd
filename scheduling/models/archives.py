"""Files that hold the bytes of rounds of whole days, and how far days are in files."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from scheduling.models.cluster import Pool


class RoundArchive(models.Model):
    """A file with the stored bytes of rounds of one pool and one day, written and read back.

    Rounds `first` to `last` of `day` (as `RoundBlob.day`); `members` are the parts in it, `bytes`
    and `sha256` those of the whole file. `problem`: what was found when it was looked at again, at
    `checked_at`. A file is dropped by `dropped_at` first, and is gone at `deleted_at`. The
    application's role may change these four columns, and no row is ever deleted.
    """

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    day = models.DateField()
    name = models.CharField(max_length=255, unique=True)
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    members = models.PositiveIntegerField()
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    archived_at = models.DateTimeField(help_text="Wall time.")
    checked_at = models.DateTimeField(help_text="Wall time.")
    problem = models.CharField(max_length=255, default="", blank=True)
    dropped_at = models.DateTimeField(null=True, help_text="Wall time.")
    deleted_at = models.DateTimeField(null=True, help_text="Wall time.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(last__gte=F("first")), name="archive_not_empty"),
            models.CheckConstraint(
                condition=Q(deleted_at__isnull=True) | Q(dropped_at__isnull=False),
                name="archive_dropped_before_deleted",
            ),
        ]
        indexes = [models.Index(fields=["pool", "last"], name="archive_by_round")]


class RoundArchiving(models.Model):
    """How the last look for days to put into files went, for a pool that had one.

    `failure`: why a day is still in the database, "" where none is that should not.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="archiving"
    )
    looked_at = models.DateTimeField(help_text="Wall time.")
    failure = models.CharField(max_length=255, default="", blank=True)
