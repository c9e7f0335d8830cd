"""Read-only queries of all accounts of a book, for site users who manage credit."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.models import Account


@dataclass(frozen=True, slots=True)
class Balance:
    """An account; `slug` and `tenant` are empty for the operator's."""

    slug: str
    tenant: str
    balance: Decimal


def balances(book: str) -> list[Balance]:
    """Return all accounts of a book, tenants by slug, then the operator's. A single query."""
    rows = Account.objects.filter(book__slug=book).order_by("tenant__slug")
    fields = rows.values_list("tenant__slug", "tenant__name", "balance")
    return [Balance(slug or "", name or "", balance) for slug, name, balance in fields]
