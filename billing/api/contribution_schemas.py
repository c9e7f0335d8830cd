"""Shapes of what lending earned, for the schema; a test compares every answer with them."""

from __future__ import annotations

from rest_framework import serializers as s

from billing.selectors.contribution import IncomeSumRow, ReconciliationRow
from billing.selectors.revenue import AlphaItem
from scheduling.api.schemas import Credits
from tenants.api.answer_schemas import answer_serializer


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
    reconciliation = answer_serializer(ReconciliationRow)()
    by_day = answer_serializer(IncomeSumRow)(many=True)
    by_gpu_type = answer_serializer(IncomeSumRow)(many=True)
    by_borrower = answer_serializer(IncomeSumRow)(many=True)
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


class IncomeLineRow(s.Serializer[object]):
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
    charged_until = s.DateTimeField(
        allow_null=True,
        help_text="If rounds were late for the term: until when its borrower was charged. null:"
        " until it ended.",
    )
    borne = Credits(help_text="What of `charge` the operator paid, because rounds were late.")
    earned_borne = Credits(
        help_text="What of `earned` the operator paid: `borne` split by what lenders earned, by the"
        " largest remainder."
    )


class IncomeLinePage(s.Serializer[object]):
    """A page of income lines."""

    results = IncomeLineRow(many=True)
    next = s.CharField(allow_null=True)


class RevenueFairnessAnswer(s.Serializer[object]):
    """alpha of every tenant of a pool in the settled hours of [since, until)."""

    pool = s.CharField()
    since = s.DateTimeField()
    until = s.DateTimeField(help_text="As far as hours are settled.")
    currency = s.CharField()
    results = answer_serializer(AlphaItem)(many=True)
