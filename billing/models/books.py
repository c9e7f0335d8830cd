"""Books, accounts, transfers, prices, and the usage that transfers settle.

Amounts are credits, numeric(20,6). Times are pool time except `posted_at`. Transfers, entries,
prices, usage lines and shares refuse UPDATE, DELETE and TRUNCATE, so that a correction is always a
new transfer. Their rows have a seal, which the database sets and no model reads
(tenants/append_only.py).
"""

import uuid
from decimal import Decimal

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from evenshare_core.units import HOUR_US
from scheduling.models import GpuType, Job, Lease, Pool
from tenants.language import gettext_lazy as _
from tenants.models import Tenant, User

# The limit of numeric(20,6). The comparison also refuses NaN, because Postgres sorts it above all
# numbers.
LIMIT = Decimal(10) ** 14


class CreditField(models.DecimalField):  # type: ignore[type-arg]  # generic in the stubs only
    """An amount of credits: numeric(20,6)."""

    def __init__(self, **options: object) -> None:
        options |= {"max_digits": 20, "decimal_places": 6}
        super().__init__(**options)  # type: ignore[arg-type]  # passed through unchanged


class Book(models.Model):
    """The accounts of one currency and one clock; no transfer moves credits between books."""

    class ClockDomain(models.TextChoices):
        """The clock that gives the book's times."""

        REAL = "real", "pools at scale 1"
        SCALED = "scaled", "pools whose clock runs faster"

    slug = models.SlugField(max_length=31, unique=True)
    currency = models.CharField(max_length=31)
    clock_domain = models.CharField(max_length=16, choices=ClockDomain.choices)

    def __str__(self) -> str:
        return self.slug


class Account(models.Model):
    """A party's credits in a book. Only a trigger on entries changes `balance`.

    `credit_limit`: how far below zero transfers may take the balance, or None if there is no limit.
    Only the database sets it, from the tenant's budget. `overrun`: how far the account is below
    that limit. Causes: a job used GPUs before a round took them back, or the limit was lowered.
    """

    class Kind(models.TextChoices):
        """The owner of an account."""

        TENANT = "tenant", "tenant"
        OPERATOR = "operator", "operator"

    book = models.ForeignKey(Book, on_delete=models.PROTECT, related_name="accounts")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="accounts", null=True, blank=True
    )
    balance = CreditField(default=0)
    credit_limit = CreditField(null=True, blank=True)
    overrun = CreditField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["book", "tenant"],
                condition=Q(tenant__isnull=False),
                name="account_once_per_tenant",
            ),
            models.UniqueConstraint(
                fields=["book", "kind"],
                condition=Q(tenant__isnull=True),
                name="account_once_per_kind",
            ),
            models.CheckConstraint(
                condition=Q(kind="tenant", tenant__isnull=False)
                | (~Q(kind="tenant") & Q(tenant__isnull=True)),
                name="account_tenant_fits_kind",
            ),
            models.CheckConstraint(
                condition=Q(balance__gt=-LIMIT, balance__lt=LIMIT), name="account_balance_finite"
            ),
            models.CheckConstraint(
                condition=Q(overrun__gte=0, overrun__lt=LIMIT), name="account_overrun_at_least_0"
            ),
            models.CheckConstraint(
                condition=Q(credit_limit__isnull=True)
                | Q(balance__gte=-F("credit_limit") - F("overrun")),
                name="account_within_credit_limit",
            ),
        ]


class Transfer(models.Model):
    """Balanced entries that move credits between accounts of one book. Append-only.

    The id is derived from the subject, so posting it again changes nothing. `hour` is the start of
    the settled hour. `body_sha256` covers the whole request: the same id with another body is
    refused. `entry_count` is the number of entries, which are all created with the transfer; the
    database refuses later ones.
    """

    class Code(models.TextChoices):
        """Why credits moved."""

        USAGE = "usage", _("borrowed GPU-time of an hour")
        ALLOWANCE = "allowance", _("credits given by the operator")
        TRANSFER = "transfer", _("credits given to another tenant")
        CORRECTION = "correction", _("correction of an earlier transfer")
        LATE_START = "late_start", _("credit for a late start")

    id = models.UUIDField(primary_key=True, editable=False)
    book = models.ForeignKey(Book, on_delete=models.PROTECT, related_name="transfers")
    code = models.CharField(max_length=16, choices=Code.choices)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, null=True, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="+")
    hour = models.DateTimeField(null=True)
    corrects = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+")
    effective_at = models.DateTimeField()
    posted_at = models.DateTimeField(db_default=Now())
    data = models.JSONField(default=dict)
    body_sha256 = models.CharField(max_length=64)
    entry_count = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(entry_count__gte=2), name="transfer_of_two_entries_or_more"
            ),
            models.CheckConstraint(
                condition=~Q(code="usage")
                | Q(pool__isnull=False, tenant__isnull=False, hour__isnull=False),
                name="transfer_usage_names_its_hour",
            ),
            models.CheckConstraint(
                condition=~Q(code="correction") | Q(corrects__isnull=False),
                name="transfer_correction_names_its_source",
            ),
            models.CheckConstraint(
                condition=~Q(code="late_start")
                | Q(pool__isnull=False, tenant__isnull=False, entry_count=2),
                name="transfer_late_start_of_a_tenant",
            ),
            # Allows one settlement per borrower and hour, even if ids were derived differently.
            models.UniqueConstraint(
                fields=["book", "pool", "tenant", "hour"],
                condition=Q(code="usage"),
                name="transfer_usage_once_per_hour",
            ),
        ]
        indexes = [
            models.Index(fields=["pool", "hour"], name="transfer_by_pool_hour"),
            models.Index(fields=["book", "-effective_at", "-id"], name="transfer_by_time"),
            models.Index(fields=["book", "posted_at"], name="transfer_by_posting"),
        ]


class Entry(models.Model):
    """An account's gain (positive) or payment (negative) in a transfer. Append-only.

    A tenant that lends to itself has both, so that paid and earned stay separate.
    """

    transfer = models.ForeignKey(Transfer, on_delete=models.PROTECT, related_name="entries")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="entries")
    amount = CreditField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(amount=0) & Q(amount__gt=-LIMIT, amount__lt=LIMIT),
                name="entry_finite_and_not_zero",
            ),
        ]
        indexes = [
            # Pages of an account's statement follow this key, newest first.
            models.Index(fields=["account", "-id"], name="entry_by_account"),
        ]


class TransferRequest(models.Model):
    """A tenant's request to give credits to another tenant; a site user decides it.

    Users cannot decide their own requests. An approved request names the transfer of its credits.
    """

    class State(models.TextChoices):
        """The state of a request."""

        ASKED = "asked", "waits for a decision"
        APPROVED = "approved", "approved"
        REFUSED = "refused", "refused"

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    book = models.ForeignKey(Book, on_delete=models.PROTECT, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    receiver = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amount = CreditField()
    reason = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=State.choices, default=State.ASKED)
    asked_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    answer = models.CharField(max_length=200, default="", blank=True)
    transfer = models.ForeignKey(Transfer, on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(amount__gt=0, amount__lt=LIMIT), name="transfer_request_above_0"
            ),
            models.CheckConstraint(
                condition=~Q(tenant=F("receiver")), name="transfer_request_to_another"
            ),
            models.CheckConstraint(
                condition=Q(
                    state="asked",
                    decided_by__isnull=True,
                    decided_at__isnull=True,
                    transfer__isnull=True,
                )
                | Q(
                    state="approved",
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    transfer__isnull=False,
                )
                | Q(
                    state="refused",
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    transfer__isnull=True,
                ),
                name="transfer_request_is_decided_whole",
            ),
            models.CheckConstraint(
                condition=Q(decided_by__isnull=True) | ~Q(decided_by=F("asked_by")),
                name="transfer_request_by_two_people",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="transfer_request_by_tenant"),
            models.Index(fields=["state", "-id"], name="transfer_request_by_state"),
        ]


class PostedPrice(models.Model):
    """The price of a GPU-hour of a type, posted after a round for the next rounds. Append-only.

    price = base x (theta^(used / capacity) - 1) + surcharge; it is valid until the next price is
    posted. `theta` is the value used. `surcharge` is the addition for `queued` GPUs
    (`evenshare_core.policies.shared.prices.next_surcharges`). It changes by `surcharge_step` x base
    per round and is at most `surcharge_cap` x base. All are None if the type has no surcharge.
    """

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="posted_prices")
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    valid_from_round = models.BigIntegerField()
    price = CreditField()
    used = models.PositiveIntegerField()
    capacity = models.PositiveIntegerField()
    base = CreditField()
    theta = models.DecimalField(max_digits=12, decimal_places=3)
    surcharge = CreditField(null=True)
    queued = models.PositiveIntegerField(null=True)
    surcharge_step = models.DecimalField(max_digits=6, decimal_places=3, null=True)
    surcharge_cap = models.DecimalField(max_digits=6, decimal_places=3, null=True)
    posted_at = models.DateTimeField(help_text="Pool time of the round that posted it.")
    event_number = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "gpu_type", "valid_from_round"], name="price_once_per_round"
            ),
            models.CheckConstraint(
                condition=Q(price__gte=0, price__lt=LIMIT), name="price_at_least_0"
            ),
            models.CheckConstraint(
                condition=Q(
                    surcharge__isnull=True,
                    queued__isnull=True,
                    surcharge_step__isnull=True,
                    surcharge_cap__isnull=True,
                )
                | Q(surcharge__gte=0, surcharge__lte=F("price"))
                & Q(
                    queued__isnull=False,
                    surcharge_step__isnull=False,
                    surcharge_cap__isnull=False,
                ),
                name="price_surcharge_whole_or_none",
            ),
        ]
        indexes = [
            models.Index(fields=["pool", "gpu_type", "-posted_at"], name="price_by_time"),
        ]


class UsageLine(models.Model):
    """GPU-time of a lease term, own or borrowed: the only thing that is charged. Append-only.

    `hour` is the start of its settlement hour: the hour of `ends_at`, or the first open one if that
    hour is settled. Late usage is never posted backwards. `event_number` is the lease event that
    closed the term. `carried`: the remainder carried over from the lease's earlier terms into this
    charge, in 1/3,600,000,000 of a micro-credit (`evenshare_core.money.fixed_point.term_charge`).
    It is None for own GPUs, and for terms before remainders were carried. Such charges were rounded
    separately, and their lenders' weights are integrals.

    `charged_until`: the end of the time that `amount` covers, if rounds were late for the term;
    None means `ends_at`. The operator then pays lenders `borne` for the rest (docs/money.md), so
    that their shares sum to `amount` + `borne`.
    """

    class Meter(models.TextChoices):
        """Own or borrowed GPU-time."""

        OWN = "own", "within the own quota, free of charge"
        BORROWED = "borrowed", "above the own quota, at the term's price"

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="usage_lines")
    book = models.ForeignKey(Book, on_delete=models.PROTECT, related_name="usage_lines")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="usage_lines")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="usage_lines")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="usage_lines")
    term = models.PositiveIntegerField()
    meter = models.CharField(max_length=16, choices=Meter.choices)
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    gpus = models.PositiveIntegerField()
    price = CreditField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    amount = CreditField()
    event_number = models.BigIntegerField()
    hour = models.DateTimeField()
    carried = models.BigIntegerField(null=True)
    charged_until = models.DateTimeField(null=True)
    borne = CreditField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "term", "meter"], name="usage_once_per_term"),
            models.CheckConstraint(
                condition=Q(charged_until__isnull=True, borne=0)
                | Q(
                    ~Q(meter="own"),
                    charged_until__gte=F("starts_at"),
                    charged_until__lt=F("ends_at"),
                    borne__gte=0,
                    borne__lt=LIMIT,
                ),
                name="usage_borne_past_its_charge",
            ),
            models.CheckConstraint(
                condition=Q(ends_at__gte=F("starts_at")), name="usage_ends_after_start"
            ),
            models.CheckConstraint(condition=Q(gpus__gte=1), name="usage_of_gpus"),
            models.CheckConstraint(
                condition=Q(amount__gte=0, amount__lt=LIMIT, price__gte=0),
                name="usage_amount_at_least_0",
            ),
            models.CheckConstraint(
                condition=~Q(meter="own") | Q(amount=0, price=0), name="usage_own_is_free"
            ),
            models.CheckConstraint(
                condition=Q(carried__isnull=True)
                | Q(~Q(meter="own"), carried__gte=-HOUR_US // 2, carried__lt=HOUR_US // 2),
                name="usage_carries_half_a_unit_at_most",
            ),
        ]
        indexes = [
            models.Index(fields=["pool", "hour"], name="usage_by_hour"),
            models.Index(fields=["job", "lease", "term"], name="usage_by_job"),
            models.Index(fields=["tenant", "pool", "hour"], name="usage_by_tenant"),
            # Pages of a tenant's usage list follow this key, newest first.
            models.Index(fields=["tenant", "-id"], name="usage_page"),
        ]


class UsageShare(models.Model):
    """A lender's income from a borrowed line. Append-only.

    A line's shares sum to its `amount` plus the operator's part of it.

    The lender's part of the line is `weight` divided by the sum of the line's weights. At each
    instant of the term, it is the lender's idle quota divided by all idle quota
    (`evenshare_core.money.revenue.idle.plain_weights`). If the line has no `carried`, `weight` is
    the integral of the lender's idle quota in GPU-microseconds.

    `lent_gpu_us` is the lender's part of the line's GPU-time. `hour` repeats the line's, so that a
    lender's income of a period is one index scan.
    """

    line = models.ForeignKey(UsageLine, on_delete=models.PROTECT, related_name="shares")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="shares")
    weight = models.BigIntegerField()
    amount = CreditField()
    lent_gpu_us = models.BigIntegerField()
    hour = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["line", "account"], name="share_once_per_lender"),
            models.CheckConstraint(
                condition=Q(weight__gte=0, lent_gpu_us__gte=0, amount__gte=0, amount__lt=LIMIT),
                name="share_at_least_0",
            ),
        ]
        indexes = [
            models.Index(
                fields=["account", "hour"],
                name="share_by_lender",
                include=["amount", "lent_gpu_us"],
            ),
        ]


class MeterCursor(models.Model):
    """The progress of metering and settling a pool's lease events; the row is the meter's lock.

    `state` holds the sweep between two batches (`evenshare_core.money.revenue.terms.Sweep`) and
    `rests`: [[after event, until_us], ...], the updates of a pool without rounds. `rule_since`:
    [event, rests], what the meter had read when it started to split terms by instants. It is absent
    if the meter always did so. Hours before `settled_until` are closed.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="meter"
    )
    event_number = models.BigIntegerField(default=0)
    settled_until = models.DateTimeField(null=True)
    state = models.JSONField(default=dict)
    updated_at = models.DateTimeField(auto_now=True)
