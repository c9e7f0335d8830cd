"""Quotas, sharing settings and offers, which refer to pools; constraints of this app's tables."""

import uuid

from django.conf import settings
from django.contrib.postgres.constraints import ExclusionConstraint
from django.db import migrations, models
from django.db.models import F, Q

from tenants.bounds import bound_columns
from tenants.models import IdRange, TstzRange
from tenants.row_security import OF_TENANT, secure_rows
from tenants.shapes import (
    OBJECT,
    TEXT,
    Columns,
    Many,
    WholeNumber,
    WithFields,
    hold_choices,
    hold_counts,
    hold_names,
    hold_shapes,
)

ID = ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID"))
REPLACED = (
    "0002_quota", "0010_sharing", "0014_rows", "0015_numbers",
)

SHAPES: Columns = {
    ("auditrecord", "before"): OBJECT,
    ("auditrecord", "after"): OBJECT,
    ("idempotentreply", "made"): Many(TEXT),
    ("logscrub", "faults"): Many(WithFields(place=WholeNumber(), text=TEXT)),
}


class Migration(migrations.Migration):
    replaces = [("tenants", name) for name in REPLACED]
    dependencies = [
        ("tenants", "0001_squashed_0013_unsettled_spend"),
        ("scheduling", "0001_squashed_0048_numbers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Quota",
            fields=[
                ID,
                ("gpus", models.PositiveIntegerField()),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("mode", models.CharField(max_length=16, default="LEND_AND_BORROW",
                    choices=[("RESERVE", "RESERVE"), ("LEND", "LEND"),
                    ("LEND_AND_BORROW", "LEND_AND_BORROW")])),
                ("borrow_limit", models.PositiveIntegerField(blank=True, null=True)),
                ("lend_limit", models.PositiveIntegerField(blank=True, null=True)),
                ("gpu_type", models.ForeignKey("scheduling.gputype", models.PROTECT)),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="quotas")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="quotas")),
            ],
            options={
                "indexes": [
                    models.Index(name="quota_by_pool", fields=["pool", "valid_from"]),
                ],
                "constraints": [
                    models.CheckConstraint(name="quota_period_not_empty",
                        condition=Q(valid_until__isnull=True) | Q(valid_until__gt=F("valid_from"))),
                    ExclusionConstraint(name="quota_periods_do_not_overlap",
                        expressions=[
                            (IdRange(F("tenant"), F("tenant")), "&&"),
                            (IdRange(F("pool"), F("pool")), "&&"),
                            (IdRange(F("gpu_type"), F("gpu_type")), "&&"),
                            (TstzRange(F("valid_from"), F("valid_until")), "&&"),
                        ]),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleOffer",
            fields=[
                ID,
                ("uid", models.UUIDField(unique=True, default=uuid.uuid4, editable=False)),
                ("gpus", models.PositiveIntegerField()),
                ("floor_price", models.DecimalField(max_digits=20, decimal_places=6)),
                ("made_at", models.DateTimeField()),
                ("until", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("gpu_type", models.ForeignKey("scheduling.gputype", models.PROTECT, related_name="+")),
                ("made_by", models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
            ],
            options={
                "indexes": [
                    models.Index(name="offer_open_by_pool", fields=["pool", "tenant"],
                        condition=Q(revoked_at__isnull=True)),
                    models.Index(name="offer_by_tenant", fields=["tenant", "-id"]),
                ],
                "constraints": [
                    models.CheckConstraint(name="offer_of_a_gpu", condition=Q(gpus__gte=1)),
                    models.CheckConstraint(name="offer_floor_not_negative", condition=Q(floor_price__gte=0)),
                    models.CheckConstraint(name="offer_period_not_empty",
                        condition=Q(until__isnull=True) | Q(until__gt=F("made_at"))),
                    models.CheckConstraint(name="offer_revoked_after_it_was_made",
                        condition=Q(revoked_at__isnull=True) | Q(revoked_at__gte=F("made_at"))),
                ],
            },
        ),
        migrations.CreateModel(
            name="PriceLimit",
            fields=[
                ID,
                ("max_price", models.DecimalField(max_digits=20, decimal_places=6)),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="price_limit_once", fields=["pool", "tenant"]),
                    models.CheckConstraint(name="price_limit_not_negative", condition=Q(max_price__gte=0)),
                ],
            },
        ),
        migrations.CreateModel(
            name="SharingSetting",
            fields=[
                ID,
                ("mode", models.CharField(max_length=16, default="LEND_AND_BORROW",
                    choices=[("RESERVE", "RESERVE"), ("LEND", "LEND"),
                    ("LEND_AND_BORROW", "LEND_AND_BORROW")])),
                ("borrow_limit", models.PositiveIntegerField(blank=True, null=True)),
                ("lend_limit", models.PositiveIntegerField(blank=True, null=True)),
                ("by_offer", models.BooleanField(default=False)),
                ("gpu_type", models.ForeignKey("scheduling.gputype", models.PROTECT, related_name="+")),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="sharing_once", fields=["pool", "tenant", "gpu_type"]),
                ],
            },
        ),
        secure_rows(
            dict.fromkeys(
                (
                    "tenants_quota",
                    "tenants_idleoffer",
                    "tenants_pricelimit",
                    "tenants_sharingsetting",
                ),
                OF_TENANT,
            )
        ),
        bound_columns("tenants"),
        hold_shapes("tenants", SHAPES),
        hold_choices("tenants"),
        hold_names("tenants"),
        hold_counts("tenants"),
    ]
