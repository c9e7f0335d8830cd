"""Add requests of tenants for other quotas."""

import uuid

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows
from tenants.shapes import hold_condition

TABLE = "tenants_quotachangerequest"
STATES = (
    ("open", "waits for a decision"),
    ("approved", "approved"),
    ("declined", "declined"),
    ("withdrawn", "withdrawn"),
)


class Migration(migrations.Migration):
    dependencies = (
        ("tenants", "0007_identity"),
        ("scheduling", "0001_squashed_0048_numbers"),
    )

    operations = (
        migrations.CreateModel(
            name="QuotaChangeRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("gpus", models.PositiveIntegerField()),
                ("quota_gpus", models.PositiveIntegerField()),
                ("until", models.DateTimeField(null=True, blank=True)),
                ("reason", models.CharField(max_length=200)),
                ("asked_at", models.DateTimeField(db_default=Now())),
                ("state", models.CharField(max_length=16, choices=STATES, default="open")),
                ("approved_gpus", models.PositiveIntegerField(null=True)),
                ("answer", models.CharField(max_length=200, default="", blank=True)),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "asked_by",
                    models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+"),
                ),
                (
                    "decided_by",
                    models.ForeignKey(
                        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
                    ),
                ),
                (
                    "gpu_type",
                    models.ForeignKey("scheduling.gputype", models.PROTECT, related_name="+"),
                ),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="+")),
                (
                    "record",
                    models.ForeignKey(
                        "tenants.auditrecord", models.PROTECT, null=True, related_name="+"
                    ),
                ),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant", "-id"], name="quota_request_by_tenant"),
                    models.Index(fields=["state", "-id"], name="quota_request_by_state"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["tenant", "pool", "gpu_type"],
                        condition=Q(state="open"),
                        name="quota_request_open_once",
                    ),
                    models.CheckConstraint(condition=Q(gpus__gte=1), name="quota_request_of_a_gpu"),
                    models.CheckConstraint(
                        condition=Q(approved_gpus__isnull=True) | Q(approved_gpus__gte=1),
                        name="quota_request_approves_a_gpu",
                    ),
                    models.CheckConstraint(
                        condition=Q(
                            state="open",
                            decided_by__isnull=True,
                            decided_at__isnull=True,
                            approved_gpus__isnull=True,
                            record__isnull=True,
                        )
                        | Q(
                            state="approved",
                            decided_by__isnull=False,
                            decided_at__isnull=False,
                            approved_gpus__isnull=False,
                        )
                        | Q(
                            state__in=["declined", "withdrawn"],
                            decided_by__isnull=False,
                            decided_at__isnull=False,
                            approved_gpus__isnull=True,
                            record__isnull=True,
                        ),
                        name="quota_request_is_decided_whole",
                    ),
                ],
            },
        ),
        secure_rows({TABLE: OF_TENANT}),
        bound_columns("tenants"),
        hold_condition(TABLE, "state_known", f"state IN {tuple(name for name, _ in STATES)}"),
    )
