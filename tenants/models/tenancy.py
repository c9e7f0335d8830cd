"""Tenants, their members, quotas over periods, sharing settings, and budgets."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now

from evenshare_core.domain.entitlements import Mode
from evenshare_core.money.budgets import BudgetAction, BudgetPeriod
from tenants.language import gettext_lazy as _


class User(AbstractUser):
    """A person who signs in. `site_role` is their role for the whole site, outside of tenants."""

    class SiteRole(models.TextChoices):
        """Roles of people who run the cluster."""

        NONE = "", _("none")
        OPERATOR = "operator", _("operator")
        FINANCE = "finance", _("finance")
        AUDITOR = "auditor", _("auditor")

    site_role = models.CharField(
        max_length=16, choices=SiteRole.choices, default=SiteRole.NONE, blank=True
    )

    job_columns = ArrayField(
        models.CharField(max_length=31),
        default=list,
        db_default=[],
        blank=True,
        help_text="The columns of job lists that this person chose; empty: the usual ones.",
    )
    language = models.CharField(
        max_length=7,
        default="",
        db_default="",
        blank=True,
        help_text="The language of pages; empty: the browser's.",
    )
    identity = models.CharField(
        max_length=800,
        null=True,
        default=None,
        blank=True,
        unique=True,
        help_text="Issuer and subject at the OpenID Connect provider, with a space between.",
    )

    @property
    def is_operator(self) -> bool:
        """Return whether this person runs the cluster."""
        return self.site_role == self.SiteRole.OPERATOR


class Tenant(models.Model):
    """A group that owns quota, submits jobs, earns and spends credits."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    initials = models.CharField(max_length=2)
    swatch = models.PositiveSmallIntegerField(default=0, help_text="Colour and pattern, 0-15.")
    created_at = models.DateTimeField(auto_now_add=True)
    members: models.ManyToManyField[User, Membership] = models.ManyToManyField(
        User, through="Membership", related_name="tenants"
    )

    class Meta:
        ordering = ("slug",)

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    """A person in a tenant, with a role."""

    class Role(models.TextChoices):
        """The role of a member in the tenant."""

        VIEWER = "viewer", _("viewer")
        MEMBER = "member", _("member")
        MANAGER = "manager", _("manager")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="membership_once"),
        ]


class TstzRange(Func):
    """`tstzrange(from, until)`: open-ended if `until` is null."""

    function = "tstzrange"


class IdRange(Func):
    """`int8range(id, id, '[]')`: GiST can compare ids without an extension."""

    function = "int8range"
    template = "%(function)s(%(expressions)s, '[]')"


def _id_range(field: str) -> IdRange:
    return IdRange(F(field), F(field))


class Quota(models.Model):
    """The number of GPUs of a type to which a tenant is entitled in a pool for a period.

    Times are pool time. Entitlements come only from quotas; weights and contributions are converted
    to quotas.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="quotas")
    pool = models.ForeignKey("scheduling.Pool", on_delete=models.PROTECT, related_name="quotas")
    gpu_type = models.ForeignKey("scheduling.GpuType", on_delete=models.PROTECT)
    gpus = models.PositiveIntegerField()
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    mode = models.CharField(
        max_length=16,
        choices=[(mode.value, mode.value) for mode in Mode],
        default=Mode.LEND_AND_BORROW.value,
    )
    borrow_limit = models.PositiveIntegerField(null=True, blank=True)
    lend_limit = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(valid_until__isnull=True) | Q(valid_until__gt=F("valid_from")),
                name="quota_period_not_empty",
            ),
            # A tenant has only one quota of a GPU type at a time.
            ExclusionConstraint(
                name="quota_periods_do_not_overlap",
                expressions=[
                    (_id_range("tenant"), RangeOperators.OVERLAPS),
                    (_id_range("pool"), RangeOperators.OVERLAPS),
                    (_id_range("gpu_type"), RangeOperators.OVERLAPS),
                    (TstzRange(F("valid_from"), F("valid_until")), RangeOperators.OVERLAPS),
                ],
            ),
        ]
        indexes = [models.Index(fields=["pool", "valid_from"], name="quota_by_pool")]


class SharingSetting(models.Model):
    """A tenant's own settings of lending and borrowing in a pool, for one GPU type.

    The mode and limits that the operator sets for the quota also apply; the stricter rule wins.
    With `by_offer`, idle quota is lent only by the tenant's offers.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey("scheduling.Pool", on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey("scheduling.GpuType", on_delete=models.PROTECT, related_name="+")
    mode = models.CharField(
        max_length=16,
        choices=[(mode.value, mode.value) for mode in Mode],
        default=Mode.LEND_AND_BORROW.value,
    )
    borrow_limit = models.PositiveIntegerField(null=True, blank=True)
    lend_limit = models.PositiveIntegerField(null=True, blank=True)
    by_offer = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "tenant", "gpu_type"], name="sharing_once"),
        ]


class PriceLimit(models.Model):
    """The maximum price of a tenant's jobs in a pool for a borrowed GPU-hour."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey("scheduling.Pool", on_delete=models.PROTECT, related_name="+")
    max_price = models.DecimalField(max_digits=20, decimal_places=6)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "tenant"], name="price_limit_once"),
            models.CheckConstraint(condition=Q(max_price__gte=0), name="price_limit_not_negative"),
        ]


class IdleOffer(models.Model):
    """Idle quota that a tenant lends while the posted price is its floor or more.

    Times are pool time: it is valid from `made_at` until `until` or `revoked_at`. Rows are kept.
    """

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey("scheduling.Pool", on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey("scheduling.GpuType", on_delete=models.PROTECT, related_name="+")
    gpus = models.PositiveIntegerField()
    floor_price = models.DecimalField(max_digits=20, decimal_places=6)
    made_at = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(gpus__gte=1), name="offer_of_a_gpu"),
            models.CheckConstraint(
                condition=Q(floor_price__gte=0), name="offer_floor_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(until__isnull=True) | Q(until__gt=F("made_at")),
                name="offer_period_not_empty",
            ),
            models.CheckConstraint(
                condition=Q(revoked_at__isnull=True) | Q(revoked_at__gte=F("made_at")),
                name="offer_revoked_after_it_was_made",
            ),
        ]
        indexes = [
            models.Index(
                fields=["pool", "tenant"],
                condition=Q(revoked_at__isnull=True),
                name="offer_open_by_pool",
            ),
            models.Index(fields=["tenant", "-id"], name="offer_by_tenant"),
        ]


class Budget(models.Model):
    """A tenant's spendable credit in a book, and its budget for a period.

    `spendable` follows the ledger; `reserved` is the worst case of the running terms plus the
    unsettled charges. A round may promise `spendable + credit_limit - reserved`, and no more than
    the rest of the period's budget. `credit_limit` is set here; the database copies it to the
    tenant's account. `overrun`: how far promises and debts exceed the credit. Causes are GPUs that
    are used for longer than their term, or a lowered limit; no round and no transfer raises it.

    `period_amount` (None if there is no budget of a period) applies in each calendar month or
    quarter of pool time, or between `period_starts_at` and `period_ends_at`.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budgets")
    book = models.SlugField(max_length=31)
    spendable = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    reserved = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    credit_limit = models.DecimalField(max_digits=20, decimal_places=6, null=True, blank=True)
    overrun = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)
    period_amount = models.DecimalField(max_digits=20, decimal_places=6, null=True, blank=True)
    period_kind = models.CharField(
        max_length=16,
        choices=[(kind.value, kind.value) for kind in BudgetPeriod],
        default=BudgetPeriod.MONTH.value,
        db_default=BudgetPeriod.MONTH.value,
    )
    period_action = models.CharField(
        max_length=16,
        choices=[(action.value, action.value) for action in BudgetAction],
        default=BudgetAction.WARN.value,
        db_default=BudgetAction.WARN.value,
    )
    period_starts_at = models.DateTimeField(null=True, blank=True)
    period_ends_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "book"], name="budget_once_per_book"),
            models.CheckConstraint(condition=Q(overrun__gte=0), name="budget_overrun_at_least_0"),
            models.CheckConstraint(
                condition=Q(credit_limit__isnull=True)
                | Q(reserved__lte=F("spendable") + F("credit_limit") + F("overrun")),
                name="budget_promises_within_credit",
            ),
            models.CheckConstraint(
                condition=Q(period_amount__isnull=True)
                | Q(
                    period_amount__gt=0,
                    period_kind__in=[BudgetPeriod.MONTH.value, BudgetPeriod.QUARTER.value],
                    period_starts_at__isnull=True,
                    period_ends_at__isnull=True,
                )
                | Q(
                    period_amount__gt=0,
                    period_kind=BudgetPeriod.CUSTOM.value,
                    period_starts_at__isnull=False,
                    period_ends_at__gt=F("period_starts_at"),
                ),
                name="budget_period_is_whole",
            ),
        ]


class DailySpend(models.Model):
    """A tenant's charges in a book for one day of pool time (UTC).

    Only two writers exist. Settlement adds the sums of usage lines by day, in its own transaction.
    A correction adds its change to the day of the corrected charge. Rounds read the rest of a
    budget from here, because they do not know billing's tables.

    `unsettled`: charges of metered but unsettled hours of the day. They are part of
    `Budget.reserved`; a budget of a later period does not count them.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    book = models.SlugField(max_length=31)
    day = models.DateField()
    amount = models.DecimalField(max_digits=20, decimal_places=6)
    unsettled = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "book", "day"], name="spend_once_per_day"),
            models.CheckConstraint(condition=Q(amount__gte=0), name="spend_at_least_0"),
            models.CheckConstraint(
                condition=Q(unsettled__gte=0), name="spend_unsettled_at_least_0"
            ),
        ]


class IdempotentReply(models.Model):
    """The result of a request with an idempotency key, which repeated requests get.

    `made` lists public ids; `digest` is the SHA-256 of the request. Kept for a week.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=31)
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)
    made = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            # Of two requests with the same key, the second waits here for the commit of the first.
            models.UniqueConstraint(
                fields=["tenant", "user", "route", "key"], name="reply_once_per_key"
            ),
        ]
        indexes = [models.Index(fields=["created_at"], name="reply_by_age")]


class ApiToken(models.Model):
    """A secret with which a program acts for a person, for a limited time and within scopes.

    Only its SHA-256 is stored.

    The secret has 256 random bits, so its unsalted hash cannot be reversed.
    """

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=63)
    digest = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=31))
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["user", "-id"], name="token_by_user")]

    def __str__(self) -> str:
        return self.name


class LoginAttempt(models.Model):
    """An attempt with a password; too many attempts lock the account and the client for a while.

    `address` is the client (`tenants.addresses.client_prefix`).
    """

    username = models.CharField(max_length=150)
    address = models.CharField(max_length=45)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["username", "address", "at"], name="attempt_by_pair"),
            models.Index(fields=["address", "at"], name="attempt_by_client"),
            models.Index(fields=["at"], name="attempt_by_age"),
        ]


class RateBucket(models.Model):
    """The level of a rate limit's bucket at a time; `tenants.rate` fills it and takes from it.

    No money and no permission depends on it. The table is unlogged: after a crash of the server it
    is empty, and every bucket is full.
    """

    key = models.CharField(max_length=80, primary_key=True)
    left = models.FloatField()
    # No index: each submission updates the column, and without an index the update stays within the
    # row's page.
    at = models.DateTimeField()


class AuditRecord(models.Model):
    """A change by a site user, or a refused one: append-only.

    `subject` is the changed object in the console's terms (`pool philly`, `tenant nlp`), or the URL
    of a refusal. `before` and `after` hold only the differing or requested values, never a secret.
    """

    at = models.DateTimeField(db_default=Now())
    actor = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    action = models.CharField(max_length=31)
    subject = models.CharField(max_length=140)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    reason = models.CharField(max_length=200, default="", blank=True)
    request_id = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["action", "-id"], name="audit_by_action"),
            models.Index(fields=["subject", "-id"], name="audit_by_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.subject}"
