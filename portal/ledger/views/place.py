"""The shared part of a tenant's ledger views: pool, balance, links between them."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.accounts import ZERO, account_of
from portal.charts.page import LinkChoice
from portal.common.access import access, book_pool, tenant_pool
from portal.ledger.forms import Asked, days_query
from portal.ledger.text.ledger import balance_note
from portal.ledger.text.statement import VisibleNames
from scheduling.selectors.pools.lines import PoolFacts, pools_of_book
from scheduling.selectors.visibility import read_visibility
from tenants.models import Tenant
from tenants.permissions import Action, may_in_tenant
from tenants.selectors.quotas import pools_of

VIEWS = {
    "ledger": gettext_noop("Entries"),
    "statement": gettext_noop("Statement"),
    "contribution": gettext_noop("Contribution"),
}
PERIOD_KEYS = ("from", "to", "by")


def asked_pool(request: HttpRequest, tenant: Tenant) -> PoolFacts | None:
    """Return the pool of `book` or `pool` in the query, by default the tenant's first."""
    book, pool = request.GET.get("book", ""), request.GET.get("pool", "")
    return book_pool(request, tenant, book, pool) if book else tenant_pool(request, tenant, pool)


def asks_period(request: HttpRequest) -> bool:
    """Return whether the query names a period."""
    return any(request.GET.get(key) for key in PERIOD_KEYS)


def may_open(request: HttpRequest, tenant: Tenant) -> bool:
    """Return whether the viewer may also open the tenant's other pages and jobs."""
    return may_in_tenant(access(request), Action.SEE_TENANT, tenant.pk)


def balance_of(tenant: Tenant, book: str) -> Decimal:
    """Return the balance of settled hours, with one query. Call it in the tenant's scope."""
    account = account_of(tenant.pk, book)
    return account.balance if account else ZERO


def visible_names(request: HttpRequest, tenant_id: int, pools: Iterable[PoolFacts]) -> VisibleNames:
    """Return the names of the pools' tenants that the viewer may see."""
    who = access(request)
    return VisibleNames(tenant_id, [read_visibility(pool.id, who) for pool in pools])


def own_pools(tenant_id: int, book: str) -> list[PoolFacts]:
    """Return the pools of a book in which a tenant has or had quota."""
    own = pools_of(tenant_id)
    return [pool for pool in pools_of_book(book) if pool.id in own]


def no_place(request: HttpRequest, tenant: Tenant) -> dict[str, Any]:
    """Return the context of a view of a tenant without a pool."""
    return {"tenant": tenant, "nav_key": "ledger", "may_open": may_open(request, tenant)}


def place(
    request: HttpRequest,
    tenant: Tenant,
    facts: PoolFacts,
    asked: Asked,
    *,
    here: str,
    balance: Decimal,
) -> dict[str, Any]:
    """Return the context that all views share; `here` is the name of the view's URL."""
    book_query = f"book={facts.book}&pool={facts.name}"
    query = f"{book_query}&{days_query(asked)}" if asks_period(request) else book_query
    return {
        **no_place(request, tenant),
        "pool": facts,
        "is_own": tenant.pk in access(request).tenant_ids,
        "owes": balance < ZERO,
        "balance": abs(balance),
        "balance_note": balance_note(),
        "book_query": book_query,
        "asked": asked,
        "views": [
            LinkChoice(
                _(text), f"{reverse(name, args=[tenant.slug])}?{query}", is_here=name == here
            )
            for name, text in VIEWS.items()
        ],
    }
