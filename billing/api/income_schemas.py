"""Shapes of incomes with all their factors, and of what the ledger moved, for the schema."""

from __future__ import annotations

from rest_framework import serializers as s

from scheduling.api.schemas import Credits


class IdleRow(s.Serializer[object]):
    """From an instant until the next one of its GPU type: lendable idle quota, in GPUs."""

    gpu_type = s.CharField()
    at = s.DateTimeField()
    own = s.IntegerField(help_text="Of the tenant.")
    total = s.IntegerField(help_text="Of all lenders together, the operator with them.")


class InstantRow(s.Serializer[object]):
    """Lendable idle quota of one instant, in GPUs."""

    own = s.IntegerField()
    total = s.IntegerField()


class LenderRow(s.Serializer[object]):
    """One lender of a borrowed term."""

    name = s.CharField(help_text="As the pool shows it to you; `operator`: capacity of nobody.")
    weight = s.CharField(help_text="A whole number.")
    is_you = s.BooleanField()


class LateRoundsRow(s.Serializer[object]):
    """What the operator paid of a borrowed term, because rounds were late."""

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


class IncomeRow(LateRoundsRow):
    """One share that a tenant earned of a borrowed term, with every factor of it."""

    tenant = s.CharField()
    pool = s.CharField()
    gpu_type = s.CharField()
    round = s.IntegerField(
        allow_null=True,
        help_text="The round that granted or renewed the term: its price is the one posted for it.",
    )
    starts_at = s.DateTimeField()
    ends_at = s.DateTimeField()
    gpus = s.IntegerField(help_text="Borrowed.")
    price = Credits()
    carried = s.IntegerField(
        allow_null=True,
        help_text="As of usage: in 1/3,600,000,000 of a micro-credit. null: from before remainders"
        " were carried; then weights are integrals of idle quota, in GPU-microseconds.",
    )
    charge = Credits(
        help_text="gpus x price x time + carried, to the nearest micro-credit. The borrower paid it"
        " less `borne`."
    )
    weight = s.CharField(help_text="The tenant's own, a whole number.")
    weights = s.CharField(help_text="The sum of all lenders' weights.")
    lenders = LenderRow(
        many=True,
        allow_null=True,
        help_text="All lenders in the order in which equal remainders of the split go. null: the"
        " pool hides other tenants.",
    )
    rounded_up = s.BooleanField(
        help_text="Whether one of the micro-credits that rounding down had left went to the tenant."
    )
    earned = Credits(help_text="charge x weight / weights, by the largest remainder.")
    counts_from = s.DateTimeField(
        allow_null=True,
        help_text="Idle quota from here on is in the weight: `starts_at`, or later where that was"
        " reported late. null: no event closes the term.",
    )
    counts_until = s.DateTimeField(allow_null=True)
    idle_then = InstantRow(
        allow_null=True,
        help_text="Idle quota of the instant that decides, where nothing is between the two.",
    )
    hour = s.DateTimeField(help_text="The first instant of the hour that it is settled in.")
    transfer = s.UUIDField(allow_null=True, help_text="null: not settled, or a charge of 0.")
    borrower = s.CharField(allow_null=True, help_text="null: the pool hides it.")
    lease = s.IntegerField(allow_null=True, help_text="null: the pool hides its borrower.")
    term = s.IntegerField(allow_null=True)


class IncomePage(s.Serializer[object]):
    """A page of incomes, and idle quota over the time of all of them."""

    results = IncomeRow(many=True)
    idle = IdleRow(many=True)
    next = s.CharField(allow_null=True)


class EntryRow(s.Serializer[object]):
    """What a transfer moved on a tenant's account."""

    transfer = s.UUIDField()
    code = s.ChoiceField(["usage", "allowance", "transfer", "correction"])
    pool = s.CharField()
    hour = s.DateTimeField(allow_null=True, help_text="The hour that it settles.")
    effective_at = s.DateTimeField()
    posted_at = s.DateTimeField(help_text="Of real time.")
    corrects = s.UUIDField(allow_null=True)
    paid = Credits()
    earned = Credits()
    earned_borne = Credits(
        help_text="What of `earned` the operator paid, because rounds were late."
    )


class EntryPage(s.Serializer[object]):
    """A page of an account."""

    results = EntryRow(many=True)
    next = s.CharField(allow_null=True)
