"""Published bundles of rounds, the keys of their pseudonyms, and the progress of sealing.

`tenants.transparency` keeps the records of the chain itself.
"""

from django.db import models

from scheduling.models.cluster import Pool


class PseudonymKey(models.Model):
    """The secret from which the pseudonyms of a pool's day are derived (UTC, pool time).

    Append-only.

    32 random bytes, never disclosed. Each tenant gets its own key, derived from the secret
    (`evenshare_core.disclosure.pseudonyms.tenant_key`).
    """

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    day = models.DateField()
    secret = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "day"], name="pseudonym_key_once_a_day"),
        ]


class RoundBundle(models.Model):
    """The disclosed form of a round for download, gzip-compressed, in day partitions.

    `day` is the day of the round's `RoundBlob`, so that both are dropped together. `sha256` is the
    hash of the bundle before compression; the round's record in the chain commits to it.
    """

    day = models.DateField()
    pool = models.ForeignKey(Pool, on_delete=models.DO_NOTHING, db_constraint=False)
    number = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    data = models.BinaryField()

    pk = models.CompositePrimaryKey("day", "pool_id", "number")

    class Meta:
        managed = False  # The table is partitioned, so it is created in 0001_guards.sql.
        db_table = "scheduling_roundbundle"


class RoundSealing(models.Model):
    """The progress of sealing a pool's rounds. The process that seals locks the row.

    `first` is the first sealed round, `number` the last; 0 if no round is sealed. `findings`:
    [{"number", "kind": "damage" or "break", "text"}, ...] of rounds whose bytes are kept, or should
    be. `failure`: why the next round cannot be sealed; "" while sealing works. `queues`: [{"round",
    "jobs": ids or null, "text"}, ...], the first jobs of the queue in the last rounds, newest
    first. It is empty unless the queue is long (`scheduling.selectors.jobs.queue_order`).
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="sealing"
    )
    first = models.BigIntegerField(default=0)
    number = models.BigIntegerField(default=0)
    sealed_at = models.DateTimeField(null=True, help_text="Wall time.")
    findings = models.JSONField(default=list)
    queues = models.JSONField(default=list)
    failure = models.CharField(max_length=255, default="", blank=True)
