"""Shapes of what lending earned, for the schema; a test compares every answer with them."""

from __future__ import annotations

from rest_framework import serializers as s

from billing.api.income_schemas import LateRoundsRow
from scheduling.api.schemas import Credits


class IncomeSumRow(s.Serializer[object]):
    """Income lines with something in common."""

    name = s.CharField(
        help_text="A day (its first instant), a GPU type, or a borrower as the pool shows it to"
        " you; those that it does not show are together in one row, `other tenants`."
    )
    lines = s.IntegerField()
    lent_gpu_h = s.CharField()
    earned = Credits()
    borne = Credits(help_text="What of `earned` the operator paid, because rounds were late.")


class ReconciliationRow(s.Serializer[object]):
    """Lines against the ledger."""

    settled = Credits(help_text="Lines of hours that are settled.")
    ledger = Credits(help_text="What the transfers of these hours brought.")
    difference = Credits(help_text="Settled less ledger: zero, or something is wrong.")
    open = Credits(help_text="Lines that no transfer has settled yet.")
    corrections = Credits(help_text="Net of corrections of the pool's usage; they have no lines.")


class QuotaUseItem(s.Serializer[object]):
    """What became of a quota of a type, in GPU-hours: quota is the sum of the others."""

    gpu_type = s.CharField()
    quota_gpu_h = s.CharField()
    own_gpu_h = s.CharField()
    lent_gpu_h = s.CharField()
    kept_gpu_h = s.CharField(help_text="Idle, and not lent by its own limit or mode.")
    free_gpu_h = s.CharField(help_text="Lendable, a GPU was free, and no job took it.")
    without_gpu_h = s.CharField(help_text="Lendable, and all GPUs that there were were in use.")


class ContributionAnswer(s.Serializer[object]):
    """What a tenant earned by lending in a pool in [since, until) of pool time."""

    tenant = s.CharField()
    pool = s.CharField()
    since = s.DateTimeField()
    until = s.DateTimeField()
    currency = s.CharField()
    lines = s.IntegerField()
    lent_gpu_h = s.CharField()
    earned = Credits()
    borne = Credits(help_text="What of `earned` the operator paid, because rounds were late.")
    reconciliation = ReconciliationRow()
    by_day = IncomeSumRow(many=True)
    by_gpu_type = IncomeSumRow(many=True)
    by_borrower = IncomeSumRow(many=True)
    quota_use = QuotaUseItem(
        many=True,
        allow_null=True,
        help_text="null: longer than 31 days, which are counted at most.",
    )
    quota_counted_until = s.DateTimeField(allow_null=True)
    alpha = s.FloatField(
        allow_null=True,
        help_text="Its part of the pool's income from lending over its part of the quota, in"
        " settled hours; null where nobody earned anything, or nothing is settled.",
    )
    full_alpha = s.FloatField(
        allow_null=True,
        help_text="The same with utilities: what completed jobs were worth, with income and less"
        " cost. null: none that says what it is worth completed.",
    )


class IncomeLineRow(LateRoundsRow):
    """One share of a borrowed term: earned = charge x own_part, to the micro-credit."""

    counted_at = s.DateTimeField(help_text="Its hour closes: it counts at this instant.")
    round = s.IntegerField(
        allow_null=True, help_text="It granted or renewed the term, and fixed its price."
    )
    gpu_type = s.CharField()
    borrower = s.CharField(help_text="As the pool shows it to you.")
    job = s.UUIDField(allow_null=True, help_text="null: not yours to see.")
    lease = s.IntegerField()
    term = s.IntegerField()
    starts_at = s.DateTimeField()
    ends_at = s.DateTimeField()
    gpus = s.IntegerField()
    price = Credits()
    carried = s.CharField(
        allow_null=True,
        help_text="Micro-credits that the lease's terms before left over; charge = gpus x price x"
        " time + carried, to the nearest micro-credit. null: from before remainders were carried.",
    )
    charge = Credits()
    own_part = s.CharField(help_text="At each instant own idle / all idle quota, 12 places.")
    own_part_exact = s.CharField(help_text="The same as a fraction, where that is short.")
    lent_gpu_h = s.CharField()
    earned = Credits()
    transfer = s.UUIDField(allow_null=True, help_text="null: not settled, or a charge of 0.")


class IncomeLinePage(s.Serializer[object]):
    """A page of income lines."""

    results = IncomeLineRow(many=True)
    next = s.CharField(allow_null=True)


class AlphaItem(s.Serializer[object]):
    """One tenant's income and quota; `tenant` null is the operator, for what nobody owns."""

    tenant = s.CharField(allow_null=True)
    earned = Credits()
    income_part = s.FloatField(allow_null=True)
    quota_part = s.FloatField()
    alpha = s.FloatField(allow_null=True)
    cost = Credits(help_text="What it paid for borrowing.")
    utility = Credits(help_text="What its completed jobs were worth, those that say it.")
    full_alpha = s.FloatField(allow_null=True, help_text="alpha with utilities.")
    unreadable_jobs = s.IntegerField(
        help_text="Completed jobs whose utility cannot be read; it is in no sum."
    )


class RevenueFairnessAnswer(s.Serializer[object]):
    """alpha of every tenant of a pool in the settled hours of [since, until)."""

    pool = s.CharField()
    since = s.DateTimeField()
    until = s.DateTimeField(help_text="As far as hours are settled.")
    currency = s.CharField()
    results = AlphaItem(many=True)
