"""A tenant's statement: its account between two days, as a page and as a file."""

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from billing.selectors.accounts import account_summary
from billing.selectors.statements import account_statement, statement_lines
from portal.common.access import access, signed_in, tenant_or_404
from portal.common.clocks import pool_now
from portal.common.files import csv_file, lines_asked, no_file
from portal.common.verify import statement_panel
from portal.ledger.forms import period_choices, read_statement, shortcuts
from portal.ledger.text.statement import (
    counterparty_rows,
    file_columns,
    headline,
    most_text,
    named_counterparties,
    period_rows,
    transfer_lines,
)
from portal.ledger.views.place import (
    asked_pool,
    no_place,
    own_pools,
    place,
    visible_names,
)
from scheduling.selectors.jobs.idle import held_idle
from tenants.permissions import Action
from tenants.scopes import tenant_scope


@signed_in
@require_safe
def statement(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show a tenant's account between two days: by period and by counterparty."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = asked_pool(request, tenant)
    if facts is None:
        return render(request, "ledger/statement.html", no_place(request, tenant))
    now = pool_now(facts).pool_at
    asked = read_statement(request.GET, now)
    with tenant_scope(tenant.pk):
        shown = account_statement(
            tenant.pk, facts.book, since=asked.since, until=asked.until, period=asked.period
        )
        pools = own_pools(tenant.pk, facts.book)
        names = visible_names(request, tenant.pk, pools)
        idle = held_idle(facts.book, tenant.pk, asked.first, asked.last)
        panels = [
            statement_panel(pool, tenant, asked.since, asked.until, access(request))
            for pool in pools
        ]
        summary = account_summary(tenant.pk, facts.book, since=now)
    shared = place(request, tenant, facts, asked, here="statement", balance=summary.balance)
    rows = counterparty_rows(shown.counterparties, named_counterparties(names, tenant.pk))
    context = {
        **shared,
        "entries_query": f"{shared['book_query']}&{asked.query}",
        "panels": panels,
        "open": summary if asked.since <= now < asked.until else None,
        "by": period_choices(),
        "shortcuts": shortcuts(now, asked),
        "finding": headline(tenant.name, shown.earned, shown.paid, asked.first, asked.last),
        "statement": shown,
        "idle": idle,
        "net": shown.earned - shown.paid,
        "periods": period_rows(
            shown.periods, shown.opening, asked.period, (asked.first, asked.last)
        ),
        "counterparties": rows,
        "most_title": most_text(rows),
    }
    status = 422 if asked.errors else 200
    return render(request, "ledger/statement.html", context, status=status)


@signed_in
@require_safe
def statement_file(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Return the transfers of a statement as CSV, with the balance after each."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = asked_pool(request, tenant)
    if facts is None:
        raise Http404
    asked = read_statement(request.GET, pool_now(facts).pool_at)
    if asked.errors:
        return no_file(asked.errors)
    with tenant_scope(tenant.pk):
        opening, lines = statement_lines(
            tenant.pk, facts.book, since=asked.since, until=asked.until, limit=lines_asked()
        )
        names = visible_names(request, tenant.pk, own_pools(tenant.pk, facts.book))
    name = f"ledger-{tenant.slug}-{asked.first}-{asked.last}.csv"
    columns = file_columns(names, tenant.pk)
    return csv_file(name, columns, transfer_lines(lines, opening), hint=_("choose fewer days"))
