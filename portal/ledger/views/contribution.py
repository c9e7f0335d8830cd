"""A tenant's lending income, checked with the ledger; and the income of all tenants."""

from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import override
from django.views.decorators.http import require_safe

from billing.selectors.contribution import contribution, named_sums
from billing.selectors.income import LineKey, income_lines, visible_lines
from billing.selectors.quota_use import QUOTA_USE_MOST, counted_quota
from billing.selectors.revenue import RevenueHistory, alpha_item, revenue_history
from portal.common.access import access, pool_or_404, signed_in, tenant_or_404
from portal.common.clocks import clocks, pool_now
from portal.common.files import csv_file, lines_asked, no_file
from portal.common.tenant_badges import badge_of
from portal.common.verify import statement_panel
from portal.ledger.forms import ContributionRequest, period_choices, read_contribution, shortcuts
from portal.ledger.text.contribution import (
    COLUMNS,
    SumTable,
    contribution_headline,
    quota_use_text,
    quota_use_total,
)
from portal.ledger.text.fairness import (
    alpha_rows,
    own_alpha_chart,
    pool_alpha_charts,
)
from portal.ledger.text.statement import VisibleNames, period_text
from portal.ledger.views.place import asked_pool, balance_of, no_place, place
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.visibility import read_visibility
from tenants.models import Tenant
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope, tenant_scope

PAGE = 50


@signed_in
@require_safe
def statement(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show a tenant's income from one pool: sums, lines, use of its quota, fairness."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = asked_pool(request, tenant)
    if facts is None:
        return render(request, "ledger/contribution.html", no_place(request, tenant))
    now = pool_now(facts).pool_at
    asked = read_contribution(request.GET, now)
    before = read_key(request, "before")
    with tenant_scope(tenant.pk):
        shown = contribution(
            tenant.pk, facts.id, facts.book,
            since=asked.since, until=asked.until, period=asked.period,
        )  # fmt: skip # rows of what belongs together
        lines = income_lines(
            tenant.pk, facts.id, facts.book,
            since=asked.since, until=asked.until, before=before, limit=PAGE + 1,
        )  # fmt: skip # rows of what belongs together
        visibility = read_visibility(facts.id, access(request))
        history = revenue_history(
            facts.id,
            since=asked.since,
            until=asked.until,
        )
        quota = _quota_context(tenant, facts, asked)
        verify = statement_panel(facts, tenant, asked.since, asked.until, access(request))
        balance = balance_of(tenant, facts.book)
    names = VisibleNames(tenant.pk, [visibility])
    context = {
        **place(request, tenant, facts, asked, here="contribution", balance=balance),
        "by": period_choices(),
        "shortcuts": shortcuts(now, asked),
        "earned_text": contribution_headline(
            tenant.name, shown, is_own=tenant.pk in access(request).tenant_ids
        ),
        "shown": shown,
        "by_period": SumTable(
            "t-periods",
            _("By period"),
            _("Period, pool time"),
            named_sums(shown.periods, lambda begins_at: period_text(begins_at, asked.period)),
        ),
        "by_type": SumTable(
            "t-types", _("By GPU type"), _("GPU type"), named_sums(shown.gpu_types, str)
        ),
        "by_borrower": SumTable(
            "t-borrowers", _("By borrower"), _("Borrower"), named_sums(shown.borrowers, names.of)
        ),
        "lines": visible_lines(lines[:PAGE], names.of, visibility),
        "times": clocks(facts),
        "older": lines[PAGE - 1].key_text if len(lines) > PAGE else "",
        "is_paged": before is not None,
        "verify": verify,
        **quota,
        **_fairness_context(tenant, history),
    }
    status = 422 if asked.errors else 200
    return render(request, "ledger/contribution.html", context, status=status)


def _quota_context(tenant: Tenant, facts: PoolFacts, asked: ContributionRequest) -> dict[str, Any]:
    """Return the use of the quota, unless the range is too long to count."""
    if asked.until - asked.since > QUOTA_USE_MOST:
        return {"quota_days_most": QUOTA_USE_MOST.days}
    counted = counted_quota(tenant.pk, facts.id, since=asked.since, until=asked.until)
    rows = counted.rows
    total = quota_use_total(rows)
    return {
        "quota_rows": rows,
        "quota_total": total,
        "quota_text": quota_use_text(total),
        "quota_until": clocks(facts).instant(counted.until),
    }


def _fairness_context(tenant: Tenant, history: RevenueHistory | None) -> dict[str, Any]:
    if history is None or tenant.pk not in history.whole.parts:
        return {}
    return {
        "fairness": alpha_item(history.whole, tenant.pk, tenant.name),
        "has_utilities": bool(history.whole.utility),
        "alpha_chart": own_alpha_chart(history, tenant.pk, file=f"alpha-{tenant.slug}"),
    }


@signed_in
@require_safe
def statement_file(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Return the income lines of a range as CSV, with all their factors."""
    tenant = tenant_or_404(request, slug, Action.SEE_MONEY)
    facts = asked_pool(request, tenant)
    if facts is None:
        raise Http404
    asked = read_contribution(request.GET, pool_now(facts).pool_at)
    if asked.errors:
        return no_file(asked.errors)
    with tenant_scope(tenant.pk):
        lines = income_lines(
            tenant.pk, facts.id, facts.book,
            since=asked.since, until=asked.until, limit=lines_asked(),
        )  # fmt: skip # rows of what belongs together
        visibility = read_visibility(facts.id, access(request))
    name = f"contribution-{tenant.slug}-{facts.name}-{asked.since:%Y%m%d}-{asked.until:%Y%m%d}.csv"
    with override("en"):
        shown = visible_lines(lines, VisibleNames(tenant.pk, [visibility]).of, visibility)
    return csv_file(name, COLUMNS, reversed(shown), hint=_("choose a shorter period"))


@signed_in
@require_safe
def revenue(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show all tenants' income relative to their quotas, for viewers of all money."""
    facts = pool_or_404(request, name)
    if not may_on_site(access(request).site_role, Action.SEE_MONEY):
        raise Http404
    now = pool_now(facts).pool_at
    asked = read_contribution(request.GET, now)
    with site_scope():
        history = revenue_history(
            facts.id,
            since=asked.since,
            until=asked.until,
        )
        visibility = read_visibility(facts.id, access(request))
    badges = {tenant: badge_of(seen) for tenant, seen in visibility.known.items()}
    context: dict[str, Any] = {
        "pool": facts,
        "asked": asked,
        "shortcuts": shortcuts(now, asked),
        "nav_key": "ledger",
    }
    if history is not None:
        rows = alpha_rows(history, badges)
        context |= {
            "rows": rows,
            "earned": sum(row.earned for _badge, row in rows),
            "until": clocks(facts).instant(history.until),
            "has_utilities": bool(history.whole.utility),
            "unreadable": sum(row.unreadable for _badge, row in rows),
            "charts": pool_alpha_charts(history, badges, pool=facts.name),
        }
    status = 422 if asked.errors else 200
    return render(request, "ledger/revenue.html", context, status=status)


def read_key(request: HttpRequest, name: str) -> LineKey | None:
    """Return a line's key in a query: its hour in seconds since 1970, and its number."""
    raw = request.GET.get(name, "")
    if not raw:
        return None
    hour, _dash, number = raw.partition("-")
    if not (hour.isdecimal() and number.isdecimal()) or len(hour) > 11 or len(number) > 18:
        raise Http404
    return datetime.fromtimestamp(int(hour), UTC), int(number)
