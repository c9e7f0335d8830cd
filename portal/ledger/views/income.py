"""An income line of a tenant, with all its factors."""

from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.selectors.factors import income_factors
from billing.selectors.income import IncomeLine, income_line, income_lines
from portal.common.access import access, signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import clocks
from portal.common.verify import statement_panel
from portal.ledger.text.income import income_context, verified_time
from portal.ledger.text.statement import VisibleNames
from portal.ledger.views.contribution import read_key
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.visibility import read_visibility
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import tenant_scope

FIRST, LAST = datetime(1971, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


@signed_in
@require_safe
def line(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show the line in the query, by default the newest: every factor, every interval."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = tenant_pool(request, tenant, request.GET.get("pool", ""))
    context: dict[str, Any] = {"tenant": tenant, "pool": facts, "nav_key": "ledger"}
    if facts is None:
        return render(request, "ledger/income_line.html", context)
    with tenant_scope(tenant.pk):
        shown = _line(request, tenant, facts)
        visibility = read_visibility(facts.id, access(request))
        if shown is not None:
            factors = income_factors(tenant.pk, facts.id, [shown])
            names = VisibleNames(tenant.pk, [visibility])
            context |= income_context(factors, tenant.pk, names, visibility, clocks(facts))
            since, until = verified_time(shown)
            context["verify"] = statement_panel(facts, tenant, since, until, access(request))
    return render(request, "ledger/income_line.html", context)


def _line(request: HttpRequest, tenant: Tenant, facts: PoolFacts) -> IncomeLine | None:
    """Return the query's line, by default the newest; None if there is none."""
    key = read_key(request, "line")
    if key is None:
        newest = income_lines(tenant.pk, facts.id, facts.book, since=FIRST, until=LAST, limit=1)
        return newest[0] if newest else None
    asked = income_line(tenant.pk, facts.id, facts.book, hour=key[0], number=key[1])
    if asked is None:
        raise Http404
    return asked
