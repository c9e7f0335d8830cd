"""Rounds, their stored bytes, and the state that each round leaves for the next one."""

from django.db import models

from scheduling.models.cluster import Pool


class Round(models.Model):
    """A committed scheduling decision of a pool. Append-only.

    `at` is the time of the round on its grid: the policy's `now`. `summary` holds the counts that
    lists show, `shares` the rows of the decision per (tenant, type). In pools with profiles, both
    contain `throughput_milli`: GPUs x speed of all leases after the round. `superseded`: parts of
    the decision that could no longer be applied: [{"item", "id", "why"}, ...].
    """

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="rounds")
    number = models.BigIntegerField()
    at = models.DateTimeField()
    wall_at = models.DateTimeField()
    token = models.BigIntegerField()
    policy = models.SlugField(max_length=31)
    policy_version = models.CharField(max_length=31)
    scale = models.PositiveIntegerField()
    snapshot_sha256 = models.CharField(max_length=64)
    decision_sha256 = models.CharField(max_length=64)
    snapshot_us = models.PositiveIntegerField(help_text="Microseconds to read the snapshot.")
    decide_us = models.PositiveIntegerField(help_text="Microseconds to decide and check.")
    summary = models.JSONField(default=dict)
    shares = models.JSONField(default=list)
    superseded = models.JSONField(default=list)
    certificate = models.JSONField(
        null=True, help_text="Properties that the round satisfies or violates."
    )
    fallback = models.CharField(max_length=120, default="", blank=True)
    state_sha256 = models.CharField(
        max_length=64,
        default="",
        help_text="Hash of the state that the round leaves for the next round.",
    )
    state_note = models.CharField(
        max_length=255,
        default="",
        blank=True,
        help_text="Why the round did not start from the state that the previous round left.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "number"], name="round_number_once"),
            # At most one round is committed per time of the grid, even if two processes hold the
            # fence by mistake.
            models.UniqueConstraint(fields=["pool", "at"], name="round_instant_once"),
        ]


class RoundBlob(models.Model):
    """Compressed canonical bytes of a round's snapshot and decision, in day partitions."""

    day = models.DateField()
    pool = models.ForeignKey(Pool, on_delete=models.DO_NOTHING, db_constraint=False)
    number = models.BigIntegerField()
    snapshot = models.BinaryField()
    decision = models.BinaryField()

    pk = models.CompositePrimaryKey("day", "pool_id", "number")

    class Meta:
        managed = False  # The table is partitioned, so it is created in 0001_guards.sql.
        db_table = "scheduling_roundblob"


class RoundScrub(models.Model):
    """The progress of checking a pool's stored rounds, and the damaged rounds.

    `damaged`: [{"number", "text", "kind"}, ...] of rounds whose bytes are kept, or should be kept.
    `kind` is "damage", or "break" if the round does not follow from the previous round.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="scrub"
    )
    number = models.BigIntegerField(default=0, help_text="The last round that was checked.")
    checked_at = models.DateTimeField(help_text="Wall time.")
    damaged = models.JSONField(default=list)


class RoundState(models.Model):
    """The state that a round leaves for the next round, in day partitions. Append-only.

    It holds GPU-time sums and the policy's memory as compressed canonical bytes. It also holds the
    last posted price of every GPU type, and the quotas last reported to billing. Number 0 is a
    pool's initial state. The round's row has its hash (`scheduling.selectors.rounds.states`). The
    state of a pool's newest round is never dropped.
    """

    day = models.DateField()
    pool = models.ForeignKey(Pool, on_delete=models.DO_NOTHING, db_constraint=False)
    number = models.BigIntegerField()
    at = models.DateTimeField()
    policy = models.CharField(max_length=31)
    policy_version = models.CharField(max_length=31)
    service = models.BinaryField()
    memory = models.BinaryField()
    prices = models.JSONField()
    entitled = models.JSONField()

    pk = models.CompositePrimaryKey("pool_id", "number", "day")

    class Meta:
        managed = False  # The table is partitioned, so it is created in 0001_guards.sql.
        db_table = "scheduling_roundstate"
