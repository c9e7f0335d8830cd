"""A tenant's ledger: its transfers with all their sides, and the usage lines behind each."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from billing.selectors import (
    LedgerRow,
    account_summary,
    find_transfer,
    ledger_page,
    ledger_row,
    transfer_incomes,
)
from billing.selectors.balances import balances
from billing.selectors.hours import account_hours
from portal.charts.bars import hash_groups
from portal.charts.explore.money import account_chart
from portal.charts.figures import apportion
from portal.ledger.text import ZERO, account_stats, ledger_rows, lines_behind, visible_entries
from portal.site.access import access, pool_of_page, signed_in, tenant_or_404
from portal.site.clocks import clocks, pool_now
from scheduling.selectors.lines import pool_id_named
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.permissions import SITE_ACTIONS, Action
from tenants.scopes import site_scope, tenant_scope

PERIOD = timedelta(hours=24)
CHARTED = timedelta(days=7)


@signed_in
@require_safe
def accounts(request: HttpRequest) -> HttpResponseBase:
    """The viewer's own ledger; for those who see all tenants, all accounts of the book."""
    who = access(request)
    if who.home is not None:
        return redirect("ledger", slug=who.home.slug)
    if Action.SEE_TENANT not in SITE_ACTIONS.get(who.site_role, frozenset()):
        raise Http404
    facts = pool_of_page(request)
    with site_scope():
        rows = balances(facts.book) if facts else []
    shown = apportion([row.balance for row in rows])
    context = {
        "rows": [replace(row, balance=part) for row, part in zip(rows, shown, strict=True)],
        "total": sum((row.balance for row in rows), ZERO),
        "book": facts.book if facts else "",
        "nav_key": "ledger",
        "live": True,
    }
    return render(request, "ledger/accounts.html", context)


@signed_in
@require_safe
def ledger(request: HttpRequest, slug: str) -> HttpResponseBase:
    """One tenant's account in the book of its pool."""
    tenant = tenant_or_404(request, slug)
    facts = pool_of_page(request)
    if facts is None:
        return render(request, "ledger/ledger.html", {"tenant": tenant, "nav_key": "ledger"})
    since = pool_now(facts).pool_at - PERIOD
    with tenant_scope(tenant.pk):
        summary = account_summary(tenant.pk, facts.book, since=since)
        page = ledger_page(tenant.pk, facts.book, before=_before(request))
        hours = account_hours(tenant.pk, facts.book, since=since + PERIOD - CHARTED)
        visibilities = _visibilities(request, page.rows)
    rows = ledger_rows(page.rows, visibilities, tenant.pk, clocks(facts))
    context = {
        "tenant": tenant,
        "pool": facts,
        "summary": summary,
        "balance": abs(summary.balance),
        "net": abs(summary.net),
        "stats": account_stats(summary),
        "chart": account_chart(hours, key="chart-account", file=f"account-{tenant.slug}")
        if hours
        else None,
        "rows": rows,
        "printed_net": sum((row["net"] for row in rows), ZERO),
        "sums": {key: sum((getattr(r, key) or ZERO for r in page.rows), ZERO) for key in SUMMED},
        "older": page.next_before,
        "paged": _before(request) is not None,
        "nav_key": "ledger",
        "live": not request.GET,
    }
    return render(request, "ledger/ledger.html", context)


SUMMED = ("lent_gpu_h", "borrowed_gpu_h", "earned", "paid", "net")


@signed_in
@require_safe
def transfer(request: HttpRequest, slug: str, transfer: uuid.UUID) -> HttpResponseBase:
    """One transfer: all its sides, and the usage lines behind the tenant's own."""
    tenant = tenant_or_404(request, slug)
    facts = pool_of_page(request)
    with tenant_scope(tenant.pk):
        row = ledger_row(transfer, tenant_id=tenant.pk)
        stored = find_transfer(transfer) if row else None
        if row is None or stored is None or facts is None:
            raise Http404
        incomes = transfer_incomes(stored)
        visibilities = _visibilities(request, [row])
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
        "behind": lines_behind(stored, incomes, tenant.pk, times),
        "nav_key": "ledger",
    }
    return render(request, "ledger/transfer.html", context)


def _before(request: HttpRequest) -> int | None:
    raw = request.GET.get("before", "")
    if not raw:
        return None
    if not raw.isdecimal() or len(raw) > 18:
        raise Http404
    return int(raw)


def _visibilities(request: HttpRequest, rows: Iterable[LedgerRow]) -> dict[str, Visibility]:
    """What the viewer sees of the tenants of each pool that the rows name."""
    visibilities = {}
    for pool in sorted({row.pool for row in rows if row.pool}):
        pool_id = pool_id_named(pool)
        if pool_id is not None:
            visibilities[pool] = read_visibility(pool_id, access(request))
    return visibilities
