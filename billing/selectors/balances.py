"""Read-only queries of all accounts of a book, for site users who manage credit."""

from billing.models import Account


def accounts_of(book: str) -> list[Account]:
    """Return all accounts of a book, tenants by slug, then the operator's. A single query."""
    rows = Account.objects.filter(book__slug=book).select_related("tenant")
    return list(rows.order_by("tenant__slug"))
