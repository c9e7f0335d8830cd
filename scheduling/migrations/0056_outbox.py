"""Add the outbox: subscriptions, messages, deliveries, and a cursor for each pool."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import uuid
from django.conf import settings
from django.contrib.postgres.functions import RandomUUID
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows
from tenants.shapes import OBJECT, hold_condition, hold_shapes

KINDS = (
    *("job_started", "job_ended", "job_failed", "job_preempted", "job_not_renewed"),
    *("job_idle", "start_promised", "deadline_moved", "offer_revoked", "budget_reached", "test", "confirm"),
)
KNOWN = {
    ("subscription", "channel"): ("mail", "webhook", "slack", "ntfy"),
    ("subscription", "state"): ("unconfirmed", "active", "paused", "failed"),
    ("message", "kind"): KINDS,
    ("message", "state"): ("due", "sent", "failed", "dropped"),
}
# Deliveries never change. Unlike rows of append-only tables, old ones are deleted.
UNCHANGED = """
CREATE TRIGGER scheduling_delivery_unchanged BEFORE UPDATE ON scheduling_delivery
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
"""
# Messages are made only of events after this migration.
BEGIN = """
INSERT INTO scheduling_outboxcursor (pool_id, event_number, answer_round)
SELECT pool_id, next_event - 1, next_round - 1 FROM scheduling_poolfence
"""


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0055_job_holds"),
        ("tenants", "0002_squashed_0015_numbers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OutboxCursor",
            fields=[
                (
                    "pool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="outbox_cursor",
                        serialize=False,
                        to="scheduling.pool",
                    ),
                ),
                ("event_number", models.PositiveBigIntegerField(default=0)),
                ("answer_round", models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("tag", models.CharField(blank=True, db_default="", default="", max_length=31)),
                ("is_own", models.BooleanField(db_default=True, default=True)),
                (
                    "channel",
                    models.CharField(
                        choices=[
                            ("mail", "mail"),
                            ("webhook", "webhook"),
                            ("slack", "Slack or Mattermost"),
                            ("ntfy", "ntfy"),
                        ],
                        max_length=15,
                    ),
                ),
                ("address", models.CharField(max_length=500)),
                (
                    "kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=31), size=None
                    ),
                ),
                ("digest_hour", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("zone", models.CharField(db_default="UTC", default="UTC", max_length=63)),
                ("digest_at", models.DateTimeField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("unconfirmed", "not confirmed"),
                            ("active", "active"),
                            ("paused", "paused"),
                            ("failed", "switched off"),
                        ],
                        default="active",
                        max_length=15,
                    ),
                ),
                ("note", models.CharField(blank=True, db_default="", default="", max_length=200)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("confirmed_at", models.DateTimeField(blank=True, null=True)),
                ("failures", models.PositiveIntegerField(db_default=0, default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
                ("claimed_until", models.DateTimeField(blank=True, null=True)),
                ("claim", models.PositiveBigIntegerField(db_default=0, default=0)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscriptions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="scheduling.pool",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "uid",
                    models.UUIDField(
                        db_default=RandomUUID(), default=uuid.uuid4, editable=False, unique=True
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("job_started", "job started"),
                            ("job_ended", "job finished or was cancelled"),
                            ("job_failed", "job failed"),
                            ("job_preempted", "job was preempted or lost its node"),
                            ("job_not_renewed", "job's lease ended and the job waits again"),
                            ("job_idle", "job's GPUs are idle"),
                            ("start_promised", "start was promised, or a promise was not kept"),
                            ("deadline_moved", "answer to a deadline changed"),
                            ("offer_revoked", "offer of idle quota was revoked"),
                            ("budget_reached", "budget is 80 % or 100 % used"),
                            ("test", "test message"),
                            ("confirm", "address to confirm"),
                        ],
                        max_length=31,
                    ),
                ),
                ("event", models.CharField(max_length=100)),
                ("data", models.JSONField(default=dict)),
                ("at", models.DateTimeField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("due_at", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("due", "Due"),
                            ("sent", "Sent"),
                            ("failed", "Failed"),
                            ("dropped", "Dropped"),
                        ],
                        db_default="due",
                        default="due",
                        max_length=15,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(db_default=0, default=0)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                (
                    "job",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="scheduling.job",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="messages",
                        to="scheduling.subscription",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("is_ok", models.BooleanField()),
                ("status", models.PositiveIntegerField(null=True)),
                ("error", models.CharField(blank=True, default="", max_length=200)),
                ("response", models.CharField(blank=True, default="", max_length=200)),
                ("duration_ms", models.PositiveIntegerField()),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="scheduling.message",
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="scheduling.subscription",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="subscription",
            index=models.Index(
                condition=models.Q(("state", "active")),
                fields=["tenant"],
                name="subscription_by_tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.UniqueConstraint(
                fields=("person", "tenant", "channel", "address", "pool", "tag"),
                name="subscription_once",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("digest_at__isnull", True), ("digest_hour__isnull", True)),
                    models.Q(
                        ("channel", "mail"), ("digest_at__isnull", False), ("digest_hour__lte", 23)
                    ),
                    _connector="OR",
                ),
                name="subscription_digest_of_mail",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("state", "due")),
                fields=["subscription", "due_at"],
                name="message_due_by_receiver",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["created_at"], name="message_by_age"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.UniqueConstraint(
                fields=("subscription", "event"), name="message_once"
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["subscription", "-id"], name="delivery_by_subscription"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["at"], name="delivery_by_time"),
        ),
        migrations.RunSQL(
            UNCHANGED, "DROP TRIGGER scheduling_delivery_unchanged ON scheduling_delivery"
        ),
        migrations.RunSQL(BEGIN, migrations.RunSQL.noop),
        secure_rows(
            {
                "scheduling_subscription": OF_TENANT,
                "scheduling_message": OF_TENANT,
                "scheduling_delivery": OF_TENANT,
            }
        ),
        bound_columns("scheduling"),
        hold_shapes("scheduling", {("message", "data"): OBJECT}),
        *(
            hold_condition(f"scheduling_{table}", f"{column}_known", f"{column} IN {words}")
            for (table, column), words in KNOWN.items()
        ),
    ]
