"""People, tenants, budgets and logs, and the functions that guard tables of all apps."""

import uuid
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import UserManager
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from tenants.append_only import append_only
from tenants.row_security import OF_TENANT, secure_rows

ID = ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID"))
GUARDS = Path(__file__).with_name("0001_guards.sql").read_text("utf-8")
REPLACED = (
    "0001_initial", "0003_guards", "0004_tokens", "0005_audit", "0006_seals", "0007_limits",
    "0008_bounds", "0009_row_security", "0011_budget_periods", "0012_transparency",
    "0013_unsettled_spend",
)


class Migration(migrations.Migration):
    initial = True
    replaces = [("tenants", name) for name in REPLACED]
    dependencies = [("auth", "0012_alter_user_first_name_max_length")]

    operations = [
        migrations.CreateModel(
            name="User",
            fields=[
                ID,
                ("password", models.CharField(verbose_name="password", max_length=128)),
                ("last_login", models.DateTimeField(verbose_name="last login", blank=True, null=True)),
                ("is_superuser", models.BooleanField(verbose_name="superuser status", default=False,
                    help_text="Designates that this user has all permissions without explicitly assigning them.")),
                ("username", models.CharField(verbose_name="username", max_length=150, unique=True,
                    help_text="Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.",
                    validators=[UnicodeUsernameValidator()],
                    error_messages={"unique": "A user with that username already exists."})),
                ("first_name", models.CharField(verbose_name="first name", max_length=150, blank=True)),
                ("last_name", models.CharField(verbose_name="last name", max_length=150, blank=True)),
                ("email", models.EmailField(verbose_name="email address", max_length=254, blank=True)),
                ("is_staff", models.BooleanField(verbose_name="staff status", default=False,
                    help_text="Designates whether the user can log into this admin site.")),
                ("is_active", models.BooleanField(verbose_name="active", default=True,
                    help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.")),
                ("date_joined", models.DateTimeField(verbose_name="date joined", default=timezone.now)),
                ("site_role", models.CharField(max_length=16, blank=True, default="",
                    choices=[("", "none"), ("operator", "operator"), ("finance", "finance"),
                    ("auditor", "auditor")])),
                ("groups", models.ManyToManyField("auth.group", verbose_name="groups", blank=True,
                    help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                    related_name="user_set", related_query_name="user")),
                ("user_permissions", models.ManyToManyField("auth.permission",
                    verbose_name="user permissions", blank=True,
                    help_text="Specific permissions for this user.", related_name="user_set",
                    related_query_name="user")),
            ],
            options={
                "verbose_name": "user",
                "verbose_name_plural": "users",
                "abstract": False,
            },
            managers=[("objects", UserManager())],
        ),
        migrations.CreateModel(
            name="Tenant",
            fields=[
                ID,
                ("slug", models.SlugField(max_length=63, unique=True)),
                ("name", models.CharField(max_length=120)),
                ("initials", models.CharField(max_length=2)),
                ("swatch", models.PositiveSmallIntegerField(default=0,
                    help_text="Colour and pattern, 0-15.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ("slug",),
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ID,
                ("role", models.CharField(max_length=16, default="member",
                    choices=[("viewer", "viewer"), ("member", "member"), ("manager", "manager")])),
                ("user", models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE,
                    related_name="memberships")),
                ("tenant", models.ForeignKey("tenants.tenant", models.CASCADE, related_name="memberships")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="membership_once", fields=["user", "tenant"]),
                ],
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ID,
                ("book", models.SlugField(max_length=31)),
                ("spendable", models.DecimalField(default=0, max_digits=20, decimal_places=6)),
                ("reserved", models.DecimalField(default=0, max_digits=20, decimal_places=6)),
                ("credit_limit", models.DecimalField(blank=True, null=True, max_digits=20, decimal_places=6)),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="budgets")),
                ("overrun", models.DecimalField(default=0, db_default=0, max_digits=20, decimal_places=6)),
                ("period_amount", models.DecimalField(blank=True, null=True, max_digits=20,
                    decimal_places=6)),
                ("period_kind", models.CharField(max_length=16, default="month", db_default="month",
                    choices=[("month", "month"), ("quarter", "quarter"), ("custom", "custom")])),
                ("period_action", models.CharField(max_length=16, default="warn", db_default="warn",
                    choices=[("warn", "warn"), ("block", "block")])),
                ("period_starts_at", models.DateTimeField(blank=True, null=True)),
                ("period_ends_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="budget_once_per_book", fields=["tenant", "book"]),
                    models.CheckConstraint(name="budget_overrun_at_least_0", condition=Q(overrun__gte=0)),
                    models.CheckConstraint(name="budget_promises_within_credit",
                        condition=Q(credit_limit__isnull=True)
                        | Q(reserved__lte=F("spendable") + F("credit_limit") + F("overrun"))),
                    models.CheckConstraint(name="budget_period_is_whole",
                        condition=Q(period_amount__isnull=True)
                        | Q(period_amount__gt=0, period_ends_at__isnull=True, period_kind__in=["month",
                            "quarter"], period_starts_at__isnull=True)
                        | Q(period_amount__gt=0, period_ends_at__gt=F("period_starts_at"),
                            period_kind="custom", period_starts_at__isnull=False)),
                ],
            },
        ),
        migrations.CreateModel(
            name="LoginAttempt",
            fields=[
                ID,
                ("username", models.CharField(max_length=150)),
                ("address", models.CharField(max_length=45)),
                ("at", models.DateTimeField(db_default=Now())),
            ],
            options={
                "indexes": [
                    models.Index(name="attempt_by_pair", fields=["username", "address", "at"]),
                    models.Index(name="attempt_by_age", fields=["at"]),
                    models.Index(name="attempt_by_client", fields=["address", "at"]),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ID,
                ("uid", models.UUIDField(unique=True, default=uuid.uuid4, editable=False)),
                ("name", models.CharField(max_length=63)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("scopes", ArrayField(models.CharField(max_length=31))),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("user", models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE,
                    related_name="api_tokens")),
            ],
            options={
                "indexes": [
                    models.Index(name="token_by_user", fields=["user", "-id"]),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotentReply",
            fields=[
                ID,
                ("route", models.CharField(max_length=31)),
                ("key", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                ("made", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("tenant", models.ForeignKey("tenants.tenant", models.CASCADE, related_name="+")),
                ("user", models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")),
            ],
            options={
                "indexes": [
                    models.Index(name="reply_by_age", fields=["created_at"]),
                ],
                "constraints": [
                    models.UniqueConstraint(name="reply_once_per_key", fields=["tenant", "user", "route",
                        "key"]),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditRecord",
            fields=[
                ID,
                ("at", models.DateTimeField(db_default=Now())),
                ("action", models.CharField(max_length=31)),
                ("subject", models.CharField(max_length=140)),
                ("before", models.JSONField(default=dict)),
                ("after", models.JSONField(default=dict)),
                ("reason", models.CharField(max_length=200, blank=True, default="")),
                ("request_id", models.CharField(max_length=64, blank=True, default="")),
                ("actor", models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")),
            ],
            options={
                "indexes": [
                    models.Index(name="audit_by_action", fields=["action", "-id"]),
                    models.Index(name="audit_by_subject", fields=["subject", "-id"]),
                ],
            },
        ),
        migrations.CreateModel(
            name="RateBucket",
            fields=[
                ("key", models.CharField(primary_key=True, max_length=80, serialize=False)),
                ("left", models.FloatField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="DailySpend",
            fields=[
                ID,
                ("book", models.SlugField(max_length=31)),
                ("day", models.DateField()),
                ("amount", models.DecimalField(max_digits=20, decimal_places=6)),
                ("tenant", models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+")),
                ("unsettled", models.DecimalField(default=0, db_default=0, max_digits=20, decimal_places=6)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="spend_once_per_day", fields=["tenant", "book", "day"]),
                    models.CheckConstraint(name="spend_at_least_0", condition=Q(amount__gte=0)),
                    models.CheckConstraint(name="spend_unsettled_at_least_0", condition=Q(unsettled__gte=0)),
                ],
            },
        ),
        migrations.CreateModel(
            name="TransparencyLog",
            fields=[
                ID,
                ("origin", models.CharField(max_length=200, unique=True)),
                ("made_at", models.DateTimeField(db_default=Now())),
            ],
        ),
        migrations.CreateModel(
            name="LogKey",
            fields=[
                ID,
                ("public", models.BinaryField()),
                ("since", models.DateTimeField(db_default=Now())),
                ("until", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(name="log_key_in_order",
                        condition=Q(until__isnull=True) | Q(until__gte=F("since"))),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogEntry",
            fields=[
                ID,
                ("index", models.BigIntegerField()),
                ("record", models.BinaryField()),
                ("leaf_hash", models.BinaryField()),
                ("log", models.ForeignKey("tenants.transparencylog", models.PROTECT, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="log_entry_once", fields=["log", "index"]),
                    models.CheckConstraint(name="log_entry_from_0", condition=Q(index__gte=0)),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogNode",
            fields=[
                ID,
                ("level", models.PositiveSmallIntegerField()),
                ("index", models.BigIntegerField()),
                ("hash", models.BinaryField()),
                ("log", models.ForeignKey("tenants.transparencylog", models.PROTECT, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="log_node_once", fields=["log", "level", "index"]),
                    models.CheckConstraint(name="log_node_in_a_tree",
                        condition=Q(index__gte=0, level__gte=1, level__lte=62)),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogScrub",
            fields=[
                ID,
                ("kind", models.CharField(max_length=15)),
                ("place", models.BigIntegerField(default=0)),
                ("size", models.BigIntegerField(default=0)),
                ("root", models.CharField(max_length=64, default="")),
                ("faults", models.JSONField(default=list)),
                ("checked_at", models.DateTimeField(db_default=Now())),
                ("log", models.ForeignKey("tenants.transparencylog", models.PROTECT, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="log_scrub_once", fields=["log", "kind"]),
                ],
            },
        ),
        migrations.AddField("tenant", "members", models.ManyToManyField(settings.AUTH_USER_MODEL,
            related_name="tenants", through="tenants.Membership")),
        migrations.RunSQL(GUARDS),
        append_only(
            "tenants_auditrecord",
            "tenants_transparencylog",
            "tenants_logentry",
            "tenants_lognode",
            "tenants_logkey",
        ),
        secure_rows(
            dict.fromkeys(
                ("tenants_budget", "tenants_dailyspend", "tenants_idempotentreply"), OF_TENANT
            )
        ),
    ]
