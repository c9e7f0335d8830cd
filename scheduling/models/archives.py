"""Archive files with the bytes of rounds by day, and the progress of archiving."""

from django.db import models
from django.db.models import F, Q

from scheduling.models.cluster import Pool


class RoundArchive(models.Model):
    """A file with the stored bytes of rounds of one pool and one day.

    It holds rounds `first` to `last` of `day` (as `RoundBlob.day`). `members` is the number of
    parts; `bytes` and `sha256` are the size and the hash of the whole file. `problem` is the error
    of the last check, at `checked_at`. A file is first marked by `dropped_at`, then deleted at
    `deleted_at`. The application's role may change these four columns; no row is ever deleted.
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
    """The result of a pool's last archiving run.

    `failure`: why a day is still in the database; "" if all due days are archived.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="archiving"
    )
    looked_at = models.DateTimeField(help_text="Wall time.")
    failure = models.CharField(max_length=255, default="", blank=True)
