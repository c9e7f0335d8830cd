"""A tenant's ledger: its transfers with all their entries, and the usage lines behind each."""

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from billing.models import Account
from billing.requests import GiftRequest
from billing.selectors.accounts import LedgerRow, account_summary, ledger_page, ledger_row
from billing.selectors.balances import accounts_of
from billing.selectors.clock import book_now
from billing.selectors.credit import credit_states, ids_of, receivers, transfer_wishes
from billing.selectors.hours import account_hours
from billing.selectors.income import lines_of_transfer
from billing.selectors.late_starts import is_late_start, late_start_row
from billing.selectors.statements import counterparty_page
from billing.selectors.usage import find_transfer
from billing.services.transfers import ask_transfer
from portal.charts.bars import hash_groups
from portal.charts.explore.money import account_chart
from portal.charts.explore.spans import WEEK
from portal.charts.figures import apportion
from portal.common.access import (
    about,
    access,
    pool_of_page,
    signed_in,
    tenant_or_404,
)
from portal.common.clocks import Clocks, clocks, clocks_by_pool, pool_now
from portal.common.forms import typed_request
from portal.common.lists import key_asked
from portal.common.verify import statement_panel
from portal.ledger.forms import (
    StatementRequest,
    gift_inputs,
    read_counterparty,
    read_statement,
    shortcuts,
)
from portal.ledger.text.credit import credit_context
from portal.ledger.text.ledger import (
    ZERO,
    account_stats,
    balance_note,
    late_start_facts,
    ledger_rows,
    lines_behind,
    visible_entries,
)
from portal.ledger.text.statement import NamedCounterparty, named_counterparties
from portal.ledger.views.place import (
    asked_pool,
    asks_period,
    may_open,
    no_place,
    own_pools,
    place,
    visible_names,
)
from portal.site.request_id import request_id_of
from scheduling.selectors.pools.lines import (
    PoolFacts,
    all_books,
    pool_id_named,
    pools_named,
    pools_of_book,
)
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.audit import Actor
from tenants.idempotency import KEY_MAX, InFlightError, MismatchError
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant, User
from tenants.permissions import Action, may_ask, may_on_site
from tenants.scopes import site_scope, tenant_scope

PERIOD = timedelta(hours=24)
PAGE = 10
REAL_BOOK = "main"


@signed_in
@require_safe
def accounts(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the viewer's own ledger; show all books' accounts to viewers of all money."""
    who = access(request)
    if not may_on_site(who.site_role, Action.SEE_MONEY):
        if who.home is None:
            raise Http404
        query = request.GET.urlencode()
        return redirect(reverse("ledger", args=[who.home.slug]) + (f"?{query}" if query else ""))
    with site_scope():
        books = [_book(accounts_of(book), book) for book in sorted(all_books())]
    context = {
        "books": books,
        "count": sum(len(book["rows"]) for book in books),
        "off": [book["name"] for book in books if book["total"]],
        "nav_key": "ledger",
        "live": True,
    }
    return render(request, "ledger/accounts.html", context)


def _book(rows: list[Account], book: str) -> dict[str, Any]:
    """Return a book's accounts, rounded so that the printed amounts add up."""
    shown = apportion([row.balance for row in rows])
    return {
        "name": book,
        "pools": pools_of_book(book),
        "rows": [(row.tenant, part) for row, part in zip(rows, shown, strict=True)],
        "total": sum((row.balance for row in rows), ZERO),
    }


@signed_in
@require_safe
def ledger(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show the entries of a tenant's account in the book of its pool."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = asked_pool(request, tenant)
    if facts is None:
        return render(request, "ledger/ledger.html", no_place(request, tenant))
    now, before = pool_now(facts).pool_at, key_asked(request)
    asked = read_statement(request.GET, now)
    with tenant_scope(tenant.pk):
        summary = account_summary(tenant.pk, facts.book, since=now - PERIOD)
        moves, older, filters = _entries(request, tenant, facts, asked)
        hours = account_hours(tenant.pk, facts.book, since=now - WEEK)
        visibilities = _visibilities(request, moves)
    rows = ledger_rows(moves, visibilities, tenant.pk, _row_clocks(facts, moves))
    shared = place(request, tenant, facts, asked, here="ledger", balance=summary.balance)
    context = {
        **shared,
        **filters,
        "page_query": "&".join([shared["book_query"], *filters["kept"]]),
        "balance_note": balance_note(summary),
        "stats": account_stats(summary),
        "chart": account_chart(hours, key="chart-account", file=f"account-{tenant.slug}")
        if hours
        else None,
        "rows": rows,
        "has_pools": len({row.pool for row in moves}) > 1,
        "printed_net": sum((row["net"] for row in rows), ZERO),
        "sums": {key: sum((getattr(r, key) or ZERO for r in moves), ZERO) for key in SUMMED},
        "older": older,
        "paged": before is not None,
        "shortcuts": shortcuts(now, asked),
        "live": before is None and filters["is_all"],
    }
    status = 422 if asked.errors or filters["party_error"] else 200
    return render(request, "ledger/ledger.html", context, status=status)


def _entries(
    request: HttpRequest, tenant: Tenant, facts: PoolFacts, asked: StatementRequest
) -> tuple[list[LedgerRow], int | None, dict[str, Any]]:
    """Return a page of the requested transfers, the next page's key, and the filter's context.

    Without a period in the query, all transfers; but for a counterparty, those of the last days.
    """
    before = key_asked(request)
    is_all = not asks_period(request) and not request.GET.get("counterparty")
    parties = {} if is_all else _counterparties(request, tenant.pk, facts.book)
    key, error = read_counterparty(request.GET, parties)
    since, until = asked.since, asked.until
    if key:
        moves, older = counterparty_page(
            tenant.pk, facts.book, parties[key].counterparty,
            since=since, until=until, before=before, limit=PAGE,
        )  # fmt: skip # rows of what belongs together
    else:
        period = None if is_all else (since, until)
        moves, older = ledger_page(tenant.pk, facts.book, before=before, limit=PAGE, period=period)
    filters = {
        "is_all": is_all,
        "kept": [*([] if is_all else [asked.query]), *([f"counterparty={key}"] if key else [])],
        "parties": [(one, party.name) for one, party in parties.items()],
        "party": key,
        "party_name": parties[key].name if key else "",
        "party_error": error,
    }
    return moves, older, filters


def _counterparties(
    request: HttpRequest, tenant_id: int, book: str
) -> dict[str, NamedCounterparty]:
    names = visible_names(request, tenant_id, own_pools(tenant_id, book))
    return named_counterparties(names, tenant_id)


SUMMED = ("lent_gpu_h", "borrowed_gpu_h", "net")


@signed_in
@require_safe
def transfer(request: HttpRequest, slug: str, transfer: uuid.UUID) -> HttpResponseBase:
    """Show a transfer: its entries, and the usage lines behind the tenant's entry."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    with tenant_scope(tenant.pk):
        row = ledger_row(transfer, tenant_id=tenant.pk)
        facts = _pool_of_row(request, row)
        stored = find_transfer(transfer) if row else None
        if row is None or stored is None or facts is None:
            raise Http404
        paid, earned = lines_of_transfer(stored, tenant.pk)
        visibilities = _visibilities(request, [row])
        late = late_start_row(tenant.slug, stored.data) if is_late_start(stored) else None
        verify = None
        if row.pool and (row.hour or late):
            # An hour counts at its end.
            counted = row.hour + timedelta(hours=1) if row.hour else stored.effective_at
            until = counted + timedelta(hours=1)
            verify = statement_panel(facts, tenant, counted, until, access(request))
    times = clocks(facts)
    context = {
        "tenant": tenant,
        "row": row,
        "transfer": stored,
        "body": hash_groups(stored.body_sha256),
        "effective": times.instant(stored.effective_at),
        "since": times.instant(row.hour),
        "until": times.instant(row.hour + timedelta(hours=1)) if row.hour else None,
        "entries": visible_entries(row, visibilities.get(row.pool), tenant.pk),
        "total": sum((entry.amount for entry in row.entries), ZERO),
        "behind": lines_behind(paid, earned),
        "late": None if late is None else late_start_facts(late, times),
        "times": times,
        "verify": verify,
        "nav_key": "ledger",
        "may_open": may_open(request, tenant),
    }
    return render(request, "ledger/transfer.html", context)


@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def credit(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show a tenant's limit and budget in a book, and its requests for transfers."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = asked_pool(request, tenant)
    book = facts.book if facts is not None else REAL_BOOK
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            _ask(request, tenant, book)
        except InvalidInputError as error:
            errors = error.by_field
        except (MismatchError, InFlightError):
            errors = {
                "": _("Another request was created meanwhile: check it below, then submit again.")
            }
        else:
            messages.success(request, _("Requested. An operator or the finance role decides."))
            return redirect(f"{reverse('credit', args=[slug])}?book={book}")
    before = key_asked(request)
    with tenant_scope(tenant.pk):
        state = next(iter(credit_states(book, book_now(book), tenants=[tenant.pk])), None)
        context = credit_context(state)
        wishes, older = transfer_wishes([tenant.pk], before=before)
        names = receivers(tenant.pk, book, access(request))
    context |= {
        "tenant": tenant,
        "pool": facts,
        "book": book,
        "wishes": wishes,
        "older": older,
        "may_ask": may_ask(access(request), tenant.pk),
        "fields": gift_inputs(names.values(), request.POST, errors),
        "trouble": errors.get("", ""),
        # Constant until a request is made, so that a form sent twice makes only one request.
        "key": f"after-{wishes[0].uid if wishes else 'none'}",
        "nav_key": "ledger",
    }
    return render(request, "ledger/credit.html", context, status=422 if errors else 200)


def _ask(request: HttpRequest, tenant: Tenant, book: str) -> None:
    """Request the form's transfer.

    Raises:
        PermissionDenied: the viewer does not manage the tenant.
        InvalidInputError: a field of the form is invalid.
    """
    user = request.user
    if not isinstance(user, User) or not may_ask(access(request), tenant.pk):
        raise PermissionDenied
    with site_scope():
        names = receivers(tenant.pk, book, access(request))
    posted = request.POST.copy()
    # The page shows only names of tenants, because its reader may see no slugs.
    slugs = {one.name: slug for slug, one in names.items()}
    posted["to"] = slugs.get(posted.get("to", ""), "")
    wanted = typed_request(GiftRequest, posted, tenant=tenant.slug, book=book)
    key = request.POST.get("key", "")[:KEY_MAX] or None
    ask_transfer(
        actor=Actor(user, request_id_of(request)),
        tenant=tenant,
        receivers=ids_of(names.values()),
        request=wanted,
        key=key,
    )


def _row_clocks(facts: PoolFacts, rows: Iterable[LedgerRow]) -> dict[str, Clocks]:
    """Return the clock of each pool in the rows; a row without a pool uses the page's clock."""
    names = {row.pool for row in rows if row.pool} - {facts.name}
    others = pools_named(names) if names else []
    return {"": clocks(facts), **clocks_by_pool([facts, *others])}


def _pool_of_row(request: HttpRequest, row: LedgerRow | None) -> PoolFacts | None:
    """Return the pool of a transfer's usage, whose clock counts its hours."""
    if row is not None and row.pool:
        about(request).pool = next(iter(pools_named([row.pool])), None)
    return pool_of_page(request)


def _visibilities(request: HttpRequest, rows: Iterable[LedgerRow]) -> dict[str, Visibility]:
    """Return, by pool of the rows, which tenants the viewer may see."""
    visibilities = {}
    for pool in sorted({row.pool for row in rows if row.pool}):
        pool_id = pool_id_named(pool)
        if pool_id is not None:
            visibilities[pool] = read_visibility(pool_id, access(request))
    return visibilities
