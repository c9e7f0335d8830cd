"""GPU-time that leases hold idle: readings, sums by day, and the settings of pools."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import F, Q

from tenants.bounds import bound_columns
from tenants.row_security import OF_LEASE, OF_TENANT, secure_rows
from tenants.shapes import condition_of, hold_condition, WholeNumber, ByWord, WithFields

KINDS = (
    "entitled", "granted", "started", "renewed", "stop_asked", "ended", "priced", "traded",
    "contradicted", "promised", "late_start", "promise_ended", "idle",
)  # fmt: skip
SHAPES = ByWord("kind", {"idle": WithFields(since_us=WholeNumber(), gpus=WholeNumber(1))})
ENDS = (
    "preempted", "moved", "not_renewed", "finished", "failed", "cancelled", "profiled",
    "node_lost", "drained", "price_above_max", "price_above_value", "budget", "lost",
    "quarantined", "idle",
)  # fmt: skip
HOLDS = (
    ("tenant", "held by its tenant"),
    ("operator", "held by an operator"),
    ("idle", "held after idle GPUs"),
    ("dependency", "waiting for another job"),
    ("sweep", "waiting for its turn in the sweep"),
)
COUNTED = {
    "scheduling_idlereading": ("counted_ms", "known_us", "idle_us"),
    "scheduling_idleday": ("known_us", "idle_us"),
}


class Migration(migrations.Migration):
    dependencies = (
        ("scheduling", "0056_outbox"),
        ("tenants", "0002_squashed_0015_numbers"),
    )

    operations = (
        migrations.AddField(
            "pool", "idle_warn_s", models.PositiveIntegerField(default=1800, db_default=1800)
        ),
        migrations.AddField(
            "pool", "idle_return_s", models.PositiveIntegerField(default=0, db_default=0)
        ),
        migrations.CreateModel(
            name="IdleReading",
            fields=[
                ("lease", models.OneToOneField("scheduling.lease", models.PROTECT,
                    primary_key=True, serialize=False, related_name="idle_reading")),
                ("counted_ms", models.BigIntegerField(default=0)),
                ("known_us", models.BigIntegerField(default=0)),
                ("idle_us", models.BigIntegerField(default=0)),
                ("idle_since", models.DateTimeField(null=True, blank=True)),
                ("idle_until", models.DateTimeField(null=True, blank=True)),
                ("warned_at", models.DateTimeField(null=True, blank=True)),
                ("read_at", models.DateTimeField(help_text="Wall time of the last reading.")),
                ("is_over", models.BooleanField(default=False)),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["idle_since"],
                        condition=Q(idle_since__isnull=False),
                        name="idle_reading_now",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(idle_us__gte=0, idle_us__lte=F("known_us")),
                        name="idle_reading_within_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False,
                    verbose_name="ID")),
                ("day", models.DateField()),
                ("known_us", models.BigIntegerField(default=0)),
                ("idle_us", models.BigIntegerField(default=0)),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["tenant", "pool", "day"], name="idle_day_once"
                    ),
                    models.CheckConstraint(
                        condition=Q(idle_us__gte=0, idle_us__lte=F("known_us")),
                        name="idle_day_within_known",
                    ),
                ],
            },
        ),
        migrations.AlterField(
            "leaseevent",
            "kind",
            models.CharField(
                choices=[(kind, kind.replace("_", " ").title()) for kind in KINDS], max_length=16
            ),
        ),
        migrations.AlterField(
            "lease",
            "end_reason",
            models.CharField(
                max_length=31, choices=[(end, end) for end in ENDS], default="", blank=True
            ),
        ),
        migrations.AlterField(
            "job",
            "holds",
            ArrayField(
                models.CharField(max_length=15, choices=HOLDS),
                default=list,
                db_default=[],
                blank=True,
                help_text="Why the job may not start yet; empty if it may.",
            ),
        ),
        secure_rows({"scheduling_idlereading": OF_LEASE, "scheduling_idleday": OF_TENANT}),
        bound_columns("scheduling"),
        *(
            hold_condition(table, f"{column}_counted", f'"{column}" >= 0')
            for table, columns in COUNTED.items()
            for column in columns
        ),
        hold_condition("scheduling_lease", "end_reason_known", f"end_reason IN {('', *ENDS)}"),
        hold_condition("scheduling_leaseevent", "kind_known", f"kind IN {KINDS}"),
        hold_condition("scheduling_leaseevent", "idle_shaped", condition_of("data", SHAPES)),
    )
