"""Incomes with all their factors, and the account that they went to, for the REST API.

What a tenant needs to compute them again by itself: `evenshare statement verify` does.
"""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.contribution import STRETCH, ContributionView
from billing.api.income_schemas import EntryPage, IncomePage
from billing.selectors.contribution import income_lines
from billing.selectors.entries import AccountEntry, account_entries
from billing.selectors.factors import IncomeFactors, LineFactors, income_factors
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.units import HOUR_US
from scheduling.api.schemas import PAGE_QUERY
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.answers import credits_text
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.times import time_text
from tenants.models import Tenant
from tenants.scopes import tenant_scope

OPERATOR_NAME = "operator"


class IncomeList(ContributionView):
    """What each borrowed term brought a lender, to compute it again."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="income_list",
        responses={200: IncomePage},
        parameters=[*STRETCH, *PAGE_QUERY],
    )
    def get(self, request: Request) -> Response:
        """List a tenant's incomes from lending in a pool, newest first, with every factor.

        An income counts when its hour of pool time closes. `idle` has the idle quota of the time
        of the page's rows, in order: the intervals of a row are those of its GPU type between its
        `counts_from` and `counts_until`. Without `since` and `until`: the last seven days.
        """
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked, limit = self.asked_time(request, facts), read_limit(request)
        route = f"income.{facts.id}"
        key = read_cursor(request, route, parts=2)
        with tenant_scope(tenant.pk):
            lines = income_lines(
                tenant.pk, facts.id, facts.book, since=asked.since, until=asked.until,
                before=(from_us(key[0] * HOUR_US), key[1]) if key else None, limit=limit + 1,
            )  # fmt: skip
            factors = income_factors(tenant.pk, facts.id, lines[:limit])
            visibility = read_visibility(facts.id, self.access)
        following = None
        if len(lines) > limit:
            hour, number = lines[limit - 1].key
            following = make_cursor(route, to_us(hour) // HOUR_US, number)
        rows = [_income(row, tenant, facts, visibility) for row in factors.lines]
        return Response({"results": rows, "idle": _idle(factors), "next": following})


class EntryList(ContributionView):
    """What the ledger moved on a tenant's account."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="entry_list",
        responses={200: EntryPage},
        parameters=[*STRETCH, *PAGE_QUERY],
    )
    def get(self, request: Request) -> Response:
        """List the transfers that moved a tenant's credits for a pool, newest first.

        Those that are effective in [`since`, `until`) of the pool's time; without both: the last
        seven days.
        """
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked, limit = self.asked_time(request, facts), read_limit(request)
        route = f"entries.{facts.id}"
        key = read_cursor(request, route)
        with tenant_scope(tenant.pk):
            entries = account_entries(
                tenant.pk, facts.id, facts.book, since=asked.since, until=asked.until,
                before=key[0] if key else None, limit=limit + 1,
            )  # fmt: skip
        shown = entries[:limit]
        following = make_cursor(route, shown[-1].number) if len(entries) > limit else None
        return Response({"results": [_entry(row, facts) for row in shown], "next": following})


def _income(
    row: LineFactors, tenant: Tenant, facts: PoolFacts, visibility: Visibility
) -> dict[str, Any]:
    line, span = row.line, row.span
    then = None if span is None else span.of(tenant.pk)
    borrower = visibility.of(line.borrower_id)
    return {
        "tenant": tenant.slug,
        "pool": facts.name,
        "gpu_type": line.gpu_type,
        "round": line.round,
        "starts_at": time_text(line.starts_at),
        "ends_at": time_text(line.ends_at),
        "gpus": line.gpus,
        "price": credits_text(line.price),
        "carried": line.carried_units,
        "charge": credits_text(line.charge),
        "weight": str(line.share.weight),
        "weights": str(line.share.weights),
        "lenders": _lenders(row, tenant, visibility),
        "rounded_up": _is_rounded_up(row),
        "earned": credits_text(line.share.amount),
        "counts_from": None if span is None else time_text(from_us(span.from_us)),
        "counts_until": None if span is None else time_text(from_us(span.until_us)),
        "idle_then": None if then is None else {"own": then.own, "total": then.total},
        "hour": time_text(line.hour),
        "transfer": str(line.transfer) if line.transfer else None,
        "charged_until": time_text(line.charged_until),
        "borne": credits_text(line.borne),
        "earned_borne": credits_text(line.share_borne),
        "borrower": borrower.name if borrower else None,
        "lease": line.lease if borrower else None,
        "term": line.term if borrower else None,
    }


def _lenders(
    row: LineFactors, tenant: Tenant, visibility: Visibility
) -> list[dict[str, Any]] | None:
    if visibility.hides:
        return None
    lenders = []
    for lender, weight in row.weights:
        seen = visibility.of(lender) if lender is not None else None
        name = OPERATOR_NAME if lender is None else seen.name if seen else "another tenant"
        lenders.append({"name": name, "weight": str(weight), "is_you": lender == tenant.pk})
    return lenders


def _is_rounded_up(row: LineFactors) -> bool:
    share, charge = row.line.share, to_micro(row.line.charge)
    if not share.weights:
        return False
    return to_micro(share.amount) > charge * share.weight // share.weights


def _idle(factors: IncomeFactors) -> list[dict[str, Any]]:
    return [
        {
            "gpu_type": gpu_type,
            "at": time_text(from_us(step.at_us)),
            "own": step.own,
            "total": step.total,
        }
        for gpu_type, steps in factors.steps.items()
        for step in steps
    ]


def _entry(row: AccountEntry, facts: PoolFacts) -> dict[str, Any]:
    return {
        "transfer": str(row.transfer),
        "code": row.code,
        "pool": facts.name,
        "hour": time_text(row.hour),
        "effective_at": time_text(row.effective_at),
        "posted_at": time_text(row.posted_at),
        "corrects": str(row.corrects) if row.corrects else None,
        "paid": credits_text(row.paid),
        "earned": credits_text(row.earned),
        "earned_borne": credits_text(row.earned_borne),
    }
