"""Tenants, their members, quotas over periods, and budgets."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import F, Func, Q

from scheduling.domain.entitlements import Mode


class User(AbstractUser):
    """A person who signs in. `site_role` is their role for the whole site, besides tenants."""

    class SiteRole(models.TextChoices):
        """Roles of people who run the cluster."""

        NONE = "", "none"
        OPERATOR = "operator", "operator"
        FINANCE = "finance", "finance"
        AUDITOR = "auditor", "auditor"

    site_role = models.CharField(
        max_length=16, choices=SiteRole.choices, default=SiteRole.NONE, blank=True
    )

    @property
    def is_operator(self) -> bool:
        """Whether this person runs the cluster."""
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
        """What a member may do in the tenant."""

        VIEWER = "viewer", "viewer"
        MEMBER = "member", "member"
        MANAGER = "manager", "manager"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="membership_once"),
        ]


class TstzRange(Func):
    """`tstzrange(from, until)`: an open end where `until` is null."""

    function = "tstzrange"


class IdRange(Func):
    """`int8range(id, id, '[]')`: lets GiST compare ids without an extension."""

    function = "int8range"
    template = "%(function)s(%(expressions)s, '[]')"


def _id_range(field: str) -> IdRange:
    return IdRange(F(field), F(field))


class Quota(models.Model):
    """GPUs of a type that a tenant is entitled to in a pool, from an instant until another.

    Times are pool time. The one truth about entitlement; weights and contributions only
    produce quotas.
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
            # A tenant has one quota of a type at a time.
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


class Budget(models.Model):
    """Credit that a tenant may still spend in a book.

    `spendable` follows the ledger; `reserved` is the worst case of the terms that run now plus
    the charges not settled yet. A round may promise `spendable + credit_limit - reserved`.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budgets")
    book = models.SlugField(max_length=31)
    spendable = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    reserved = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    credit_limit = models.DecimalField(max_digits=20, decimal_places=6, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "book"], name="budget_once_per_book"),
        ]
