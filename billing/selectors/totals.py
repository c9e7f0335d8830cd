"""Sums over a whole book, for the front page. Read-only."""

from decimal import Decimal

from django.db.models import Q, Sum

from billing.models import Account, Entry, Transfer
from billing.selectors.accounts import ZERO


def sum_moved(book: str) -> tuple[Decimal, Decimal]:
    """Return the credits that settlements of usage moved in a book: to tenants, to the operator.

    A single query of entries.
    """
    entries = Entry.objects.filter(
        transfer__book__slug=book, transfer__code=Transfer.Code.USAGE, amount__gt=0
    )
    operator = Q(account__kind=Account.Kind.OPERATOR)
    sums = entries.aggregate(
        tenants=Sum("amount", filter=~operator), operator=Sum("amount", filter=operator)
    )
    return sums["tenants"] or ZERO, sums["operator"] or ZERO
