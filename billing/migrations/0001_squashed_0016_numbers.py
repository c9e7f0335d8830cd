"""Books, accounts, transfers and usage."""

import uuid
from decimal import Decimal
from pathlib import Path

from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Now

from billing.models import CreditField
from tenants.append_only import append_only, revoke_change
from tenants.bounds import bound_columns
from tenants.row_security import OF_ACCOUNT, OF_TENANT, WITH_A_PART, secure_rows
from tenants.shapes import (
    OBJECT,
    hold_choices,
    hold_condition,
    hold_counts,
    hold_names,
    hold_shapes,
    within_reach,
)

ID = ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID"))
GUARDS = Path(__file__).with_name("0001_guards.sql").read_text("utf-8")
LIMIT = Decimal(10**14)
OF_TRANSFER = "EXISTS (SELECT FROM billing_transfer t WHERE t.id = transfer_id)"
REPLACED = (
    "0001_initial", "0002_guards", "0003_usage_page", "0004_reserved_rounds_up",
    "0005_counted_entries", "0006_bounds", "0007_row_security", "0008_income_by_instant",
    "0009_surcharge", "0010_credit", "0011_corrections_are_spent", "0012_ledger_log",
    "0013_unsettled_spend", "0014_late_rounds", "0015_rows", "0016_numbers",
)


class Migration(migrations.Migration):
    initial = True
    replaces = [("billing", name) for name in REPLACED]
    dependencies = [("tenants", "0002_squashed_0015_numbers")]

    operations = [
        migrations.CreateModel(
            name="Book",
            fields=[
                ID,
                ("slug", models.SlugField(max_length=31, unique=True)),
                ("currency", models.CharField(max_length=31)),
                ("clock_domain", models.CharField(max_length=16,
                    choices=[("real", "pools at scale 1"), ("scaled", "pools whose clock runs faster")])),
            ],
        ),
        migrations.CreateModel(
            name="MeterCursor",
            fields=[
                ("pool", models.OneToOneField("scheduling.pool", models.CASCADE, primary_key=True,
                    serialize=False, related_name="meter")),
                ("event_number", models.BigIntegerField(default=0)),
                ("settled_until", models.DateTimeField(null=True)),
                ("state", models.JSONField(default=dict)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.CreateModel(
            name="Account",
            fields=[
                ID,
                ("kind", models.CharField(max_length=16,
                    choices=[("tenant", "tenant"), ("operator", "operator")])),
                ("balance", CreditField(default=0)),
                ("credit_limit", CreditField(blank=True, null=True)),
                ("overrun", CreditField(default=0)),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, blank=True, null=True,
                    related_name="accounts")),
                ("book", models.ForeignKey("billing.book", models.PROTECT, related_name="accounts")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="account_once_per_tenant", fields=["book", "tenant"],
                        condition=Q(tenant__isnull=False)),
                    models.UniqueConstraint(name="account_once_per_kind", fields=["book", "kind"],
                        condition=Q(tenant__isnull=True)),
                    models.CheckConstraint(name="account_tenant_fits_kind",
                        condition=Q(kind="tenant", tenant__isnull=False)
                        | (~Q(kind="tenant") & Q(tenant__isnull=True))),
                    models.CheckConstraint(name="account_balance_finite",
                        condition=Q(balance__gt=-LIMIT,
                            balance__lt=LIMIT)),
                    models.CheckConstraint(name="account_overrun_at_least_0",
                        condition=Q(overrun__gte=0, overrun__lt=LIMIT)),
                    models.CheckConstraint(name="account_within_credit_limit",
                        condition=Q(credit_limit__isnull=True)
                        | Q(balance__gte=F("credit_limit") * -1 - F("overrun"))),
                ],
            },
        ),
        migrations.CreateModel(
            name="PostedPrice",
            fields=[
                ID,
                ("valid_from_round", models.BigIntegerField()),
                ("price", CreditField()),
                ("used", models.PositiveIntegerField()),
                ("capacity", models.PositiveIntegerField()),
                ("base", CreditField()),
                ("theta", models.DecimalField(max_digits=12, decimal_places=3)),
                ("posted_at", models.DateTimeField(help_text="Pool time of the round that posted it.")),
                ("event_number", models.BigIntegerField()),
                ("gpu_type", models.ForeignKey("scheduling.gputype", models.PROTECT)),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="posted_prices")),
                ("surcharge", CreditField(null=True)),
                ("queued", models.PositiveIntegerField(null=True)),
                ("surcharge_step", models.DecimalField(null=True, max_digits=6, decimal_places=3)),
                ("surcharge_cap", models.DecimalField(null=True, max_digits=6, decimal_places=3)),
            ],
            options={
                "indexes": [
                    models.Index(name="price_by_time", fields=["pool", "gpu_type", "-posted_at"]),
                ],
                "constraints": [
                    models.UniqueConstraint(name="price_once_per_round", fields=["pool", "gpu_type",
                        "valid_from_round"]),
                    models.CheckConstraint(name="price_at_least_0",
                        condition=Q(price__gte=0, price__lt=LIMIT)),
                    models.CheckConstraint(name="price_surcharge_whole_or_none",
                        condition=Q(queued__isnull=True, surcharge__isnull=True, surcharge_cap__isnull=True,
                            surcharge_step__isnull=True)
                        | Q(surcharge__gte=0, surcharge__lte=F("price")) & Q(queued__isnull=False,
                            surcharge_cap__isnull=False, surcharge_step__isnull=False)),
                ],
            },
        ),
        migrations.CreateModel(
            name="Transfer",
            fields=[
                ("id", models.UUIDField(primary_key=True, editable=False, serialize=False)),
                ("code", models.CharField(max_length=16,
                    choices=[("usage", "borrowed GPU-time of an hour"),
                    ("allowance", "credits given by the operator"),
                    ("transfer", "credits given to another tenant"),
                    ("correction", "correction of an earlier transfer")])),
                ("hour", models.DateTimeField(null=True)),
                ("effective_at", models.DateTimeField()),
                ("posted_at", models.DateTimeField(db_default=Now())),
                ("data", models.JSONField(default=dict)),
                ("body_sha256", models.CharField(max_length=64)),
                ("book", models.ForeignKey("billing.book", models.PROTECT, related_name="transfers")),
                ("corrects", models.ForeignKey("billing.transfer", models.PROTECT, null=True,
                    related_name="+")),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, null=True, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, null=True, related_name="+")),
                ("entry_count", models.PositiveIntegerField()),
            ],
            options={
                "indexes": [
                    models.Index(name="transfer_by_pool_hour", fields=["pool", "hour"]),
                    models.Index(name="transfer_by_time", fields=["book", "-effective_at", "-id"]),
                    models.Index(name="transfer_by_posting", fields=["book", "posted_at"]),
                ],
                "constraints": [
                    models.CheckConstraint(name="transfer_usage_names_its_hour",
                        condition=~Q(code="usage")
                        | Q(hour__isnull=False, pool__isnull=False, tenant__isnull=False)),
                    models.CheckConstraint(name="transfer_correction_names_its_source",
                        condition=~Q(code="correction") | Q(corrects__isnull=False)),
                    models.UniqueConstraint(name="transfer_usage_once_per_hour", fields=["book", "pool",
                        "tenant", "hour"], condition=Q(code="usage")),
                    models.CheckConstraint(name="transfer_of_two_entries_or_more",
                        condition=Q(entry_count__gte=2)),
                ],
            },
        ),
        migrations.CreateModel(
            name="Entry",
            fields=[
                ID,
                ("amount", CreditField()),
                ("account", models.ForeignKey("billing.account", models.PROTECT, related_name="entries")),
                ("transfer", models.ForeignKey("billing.transfer", models.PROTECT, related_name="entries")),
            ],
            options={
                "indexes": [
                    models.Index(name="entry_by_account", fields=["account", "-id"]),
                ],
                "constraints": [
                    models.CheckConstraint(name="entry_finite_and_not_zero",
                        condition= ~Q(amount=0) & Q(amount__gt=-LIMIT,
                            amount__lt=LIMIT)),
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageLine",
            fields=[
                ID,
                ("term", models.PositiveIntegerField()),
                ("meter", models.CharField(max_length=16,
                    choices=[("own", "within the own quota, free of charge"),
                    ("borrowed", "above the own quota, at the term's price")])),
                ("gpus", models.PositiveIntegerField()),
                ("price", CreditField()),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("amount", CreditField()),
                ("event_number", models.BigIntegerField()),
                ("hour", models.DateTimeField()),
                ("book", models.ForeignKey("billing.book", models.PROTECT, related_name="usage_lines")),
                ("gpu_type", models.ForeignKey("scheduling.gputype", models.PROTECT)),
                ("job", models.ForeignKey("scheduling.job", models.PROTECT, related_name="usage_lines")),
                ("lease", models.ForeignKey("scheduling.lease", models.PROTECT, related_name="usage_lines")),
                ("pool", models.ForeignKey("scheduling.pool", models.PROTECT, related_name="usage_lines")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="usage_lines")),
                ("carried", models.BigIntegerField(null=True)),
                ("charged_until", models.DateTimeField(null=True)),
                ("borne", CreditField(default=0, db_default=0)),
            ],
            options={
                "indexes": [
                    models.Index(name="usage_by_hour", fields=["pool", "hour"]),
                    models.Index(name="usage_by_job", fields=["job", "lease", "term"]),
                    models.Index(name="usage_by_tenant", fields=["tenant", "pool", "hour"]),
                    models.Index(name="usage_page", fields=["tenant", "-id"]),
                ],
                "constraints": [
                    models.UniqueConstraint(name="usage_once_per_term", fields=["lease", "term", "meter"]),
                    models.CheckConstraint(name="usage_ends_after_start",
                        condition=Q(ends_at__gte=F("starts_at"))),
                    models.CheckConstraint(name="usage_of_gpus", condition=Q(gpus__gte=1)),
                    models.CheckConstraint(name="usage_amount_at_least_0",
                        condition=Q(amount__gte=0, amount__lt=LIMIT, price__gte=0)),
                    models.CheckConstraint(name="usage_own_is_free",
                        condition=~Q(meter="own") | Q(amount=0, price=0)),
                    models.CheckConstraint(name="usage_carries_half_a_unit_at_most",
                        condition=Q(carried__isnull=True)
                        | (~Q(meter="own") & Q(carried__gte=-1800000000, carried__lt=1800000000))),
                    models.CheckConstraint(name="usage_borne_past_its_charge",
                        condition=Q(borne=0, charged_until__isnull=True)
                        | (~Q(meter="own") & Q(borne__gte=0, borne__lt=10**14,
                            charged_until__gte=F("starts_at"), charged_until__lt=F("ends_at")))),
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageShare",
            fields=[
                ID,
                ("weight", models.BigIntegerField()),
                ("amount", CreditField()),
                ("lent_gpu_us", models.BigIntegerField()),
                ("hour", models.DateTimeField()),
                ("account", models.ForeignKey("billing.account", models.PROTECT, related_name="shares")),
                ("line", models.ForeignKey("billing.usageline", models.PROTECT, related_name="shares")),
            ],
            options={
                "indexes": [
                    models.Index(name="share_by_lender", fields=["account", "hour"],
                        include=["amount", "lent_gpu_us"]),
                ],
                "constraints": [
                    models.UniqueConstraint(name="share_once_per_lender", fields=["line", "account"]),
                    models.CheckConstraint(name="share_at_least_0",
                        condition=Q(amount__gte=0, amount__lt=LIMIT, lent_gpu_us__gte=0,
                            weight__gte=0)),
                ],
            },
        ),
        migrations.CreateModel(
            name="TransferRequest",
            fields=[
                ID,
                ("uid", models.UUIDField(unique=True, default=uuid.uuid4, editable=False)),
                ("amount", CreditField()),
                ("reason", models.CharField(max_length=200)),
                ("state", models.CharField(max_length=16, default="asked",
                    choices=[("asked", "waits for a decision"), ("approved", "approved"),
                    ("refused", "refused")])),
                ("asked_at", models.DateTimeField(db_default=Now())),
                ("decided_at", models.DateTimeField(null=True)),
                ("answer", models.CharField(max_length=200, blank=True, default="")),
                ("asked_by", models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")),
                ("book", models.ForeignKey("billing.book", models.PROTECT, related_name="+")),
                ("decided_by", models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True,
                    related_name="+")),
                ("receiver", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
                ("transfer", models.ForeignKey("billing.transfer", models.PROTECT, null=True,
                    related_name="+")),
            ],
            options={
                "indexes": [
                    models.Index(name="transfer_request_by_tenant", fields=["tenant", "-id"]),
                    models.Index(name="transfer_request_by_state", fields=["state", "-id"]),
                ],
                "constraints": [
                    models.CheckConstraint(name="transfer_request_above_0",
                        condition=Q(amount__gt=0, amount__lt=LIMIT)),
                    models.CheckConstraint(name="transfer_request_to_another",
                        condition=~Q(tenant=F("receiver"))),
                    models.CheckConstraint(name="transfer_request_is_decided_whole",
                        condition=Q(decided_at__isnull=True, decided_by__isnull=True, state="asked",
                            transfer__isnull=True)
                        | Q(decided_at__isnull=False, decided_by__isnull=False, state="approved",
                            transfer__isnull=False)
                        | Q(decided_at__isnull=False, decided_by__isnull=False, state="refused",
                            transfer__isnull=True)),
                    models.CheckConstraint(name="transfer_request_by_two_people",
                        condition=Q(decided_by__isnull=True) | ~Q(decided_by=F("asked_by"))),
                ],
            },
        ),
        migrations.CreateModel(
            name="LoggedTransfer",
            fields=[
                ID,
                ("number", models.BigIntegerField()),
                ("salt", models.BinaryField()),
                ("book", models.ForeignKey("billing.book", models.PROTECT, related_name="+")),
                ("transfer", models.OneToOneField("billing.transfer", models.PROTECT, related_name="logged")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="logged_transfer_once", fields=["book", "number"]),
                    models.CheckConstraint(name="logged_transfer_from_0", condition=Q(number__gte=0)),
                ],
            },
        ),
        migrations.RunSQL(GUARDS),
        append_only(
            "billing_transfer",
            "billing_entry",
            "billing_postedprice",
            "billing_usageline",
            "billing_usageshare",
            "billing_loggedtransfer",
        ),
        # Triggers on entries write balances; triggers on budgets write limits.
        revoke_change("billing_account", but="overrun"),
        secure_rows(
            {
                "billing_account": OF_TENANT,
                "billing_transfer": WITH_A_PART,
                "billing_entry": OF_ACCOUNT,
                "billing_usageline": OF_TENANT,
                "billing_usageshare": OF_ACCOUNT,
                "billing_transferrequest": OF_TENANT,
                "billing_loggedtransfer": OF_TRANSFER,
            }
        ),
        bound_columns("billing"),
        hold_shapes("billing", {("transfer", "data"): OBJECT, ("metercursor", "state"): OBJECT}),
        hold_choices("billing"),
        hold_names("billing"),
        hold_counts("billing"),
        # A posted price's page recomputes it; pages of income go back in time from its instant.
        hold_condition(
            "billing_postedprice",
            "of_a_round",
            "base >= 0 AND base < 1000000000000 AND theta >= 1"
            f" AND {within_reach('posted_at')}",
        ),
        # Charts of money draw the hour before and the hour after.
        *(
            hold_condition(table, "hour_counted", within_reach("hour"))
            for table in ("billing_usageshare", "billing_usageline", "billing_transfer")
        ),
    ]
