"""Sums over a whole book, for the front page. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Q, Sum

from billing.models import Account, Entry, Transfer
from billing.selectors.accounts import ZERO


@dataclass(frozen=True, slots=True)
class MovedCredits:
    """Credits moved by settlements of usage, by receiver."""

    to_tenants: Decimal
    to_operator: Decimal

    @property
    def total(self) -> Decimal:
        """Return the borrowers' payments."""
        return self.to_tenants + self.to_operator


def sum_moved(book: str) -> MovedCredits:
    """Return the credits of settled usage in a book since its start, with one query of entries."""
    entries = Entry.objects.filter(
        transfer__book__slug=book, transfer__code=Transfer.Code.USAGE, amount__gt=0
    )
    operator = Q(account__kind=Account.Kind.OPERATOR)
    sums = entries.aggregate(
        tenants=Sum("amount", filter=~operator), operator=Sum("amount", filter=operator)
    )
    return MovedCredits(sums["tenants"] or ZERO, sums["operator"] or ZERO)
