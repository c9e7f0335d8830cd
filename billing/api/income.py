"""Incomes with all their factors, and the account that they went to, for the REST API.

What a tenant needs to compute them again by itself: `evenshare statement verify` does.
"""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.contribution import STRETCH, ContributionView
from billing.selectors.entries import account_entries
from billing.selectors.factors import IncomeFactors, LineFactors, income_factors
from billing.selectors.income import OTHER_TENANT
from billing.selectors.usage import stated
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.rows import (
    EntryRow,
    IdleRow,
    IncomeRow,
    InstantRow,
    InstantUs,
    LenderRow,
    Whole,
)
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.resources import PAGE, page_serializer
from tenants.models import Tenant
from tenants.scopes import tenant_scope

OPERATOR_NAME = "operator"


class IncomePage(s.Serializer[object]):
    """A page of incomes, and idle quota over the time of all of them."""

    results = answer_serializer(IncomeRow)(many=True)
    idle = answer_serializer(IdleRow)(many=True)
    next = s.CharField(allow_null=True)


class IncomeList(ContributionView):
    """What each borrowed term brought a lender, to compute it again."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="income_list",
        responses={200: IncomePage},
        parameters=[*STRETCH, *PAGE],
    )
    def get(self, request: Request) -> Response:
        """List a tenant's incomes from lending in a pool, newest first, with every factor.

        An income counts when its hour of pool time closes. `idle` has the idle quota of the time
        of the page's rows, in order: the intervals of a row are those of its GPU type between its
        `counts_from` and `counts_until`. Without `since` and `until`: the last seven days.
        """
        asked = self.asked_income(request)
        tenant, facts = asked.tenant, asked.facts
        with tenant_scope(tenant.pk):
            lines, following = self.asked_lines(asked, "income")
            factors = income_factors(tenant.pk, facts.id, lines)
            visibility = read_visibility(facts.id, self.access)
        rows = [_income(row, tenant, facts, visibility) for row in factors.lines]
        return Response({"results": plain(rows), "idle": plain(_idle(factors)), "next": following})


class EntryList(ContributionView):
    """What the ledger moved on a tenant's account."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="entry_list",
        responses={200: page_serializer(EntryRow, "A page of an account.")},
        parameters=[*STRETCH, *PAGE],
    )
    def get(self, request: Request) -> Response:
        """List the transfers that moved a tenant's credits for a pool, newest first.

        Those that are effective in [`since`, `until`) of the pool's time; without both: the last
        seven days.
        """
        tenant, facts, since, until = self.asked_income(request)
        limit = read_limit(request)
        route = f"entries.{facts.id}"
        key = read_cursor(request, route)
        with tenant_scope(tenant.pk):
            entries = account_entries(
                tenant.pk,
                facts.id,
                facts.book,
                since=since,
                until=until,
                before=key[0] if key else None,
                limit=limit + 1,
            )
        shown = entries[:limit]
        following = make_cursor(route, shown[-1][0]) if len(entries) > limit else None
        return Response({"results": [plain(row) for _, row in shown], "next": following})


def _income(
    row: LineFactors, tenant: Tenant, facts: PoolFacts, visibility: Visibility
) -> IncomeRow:
    line, span = row.line, row.span
    then = None if span is None else span.of(tenant.pk)
    borrower = visibility.of(line.borrower_id)
    return stated(
        IncomeRow,
        line,
        tenant=tenant.slug,
        pool=facts.name,
        carried=line.carried_units,
        weight=Whole(line.weight),
        weights=Whole(line.weights),
        lenders=_lenders(row, tenant, visibility),
        rounded_up=_is_rounded_up(row),
        counts_from=None if span is None else InstantUs(span.from_us),
        counts_until=None if span is None else InstantUs(span.until_us),
        idle_then=None if then is None else InstantRow(then.own, then.total),
        borrower=borrower.name if borrower else None,
        lease=line.lease if borrower else None,
        term=line.term if borrower else None,
    )


def _lenders(
    row: LineFactors, tenant: Tenant, visibility: Visibility
) -> tuple[LenderRow, ...] | None:
    if visibility.hides:
        return None
    lenders = []
    for lender, weight in row.weights:
        seen = visibility.of(lender) if lender is not None else None
        name = OPERATOR_NAME if lender is None else seen.name if seen else OTHER_TENANT
        lenders.append(LenderRow(name, Whole(weight), lender == tenant.pk))
    return tuple(lenders)


def _is_rounded_up(row: LineFactors) -> bool:
    line = row.line
    if not line.weights:
        return False
    return to_micro(line.earned) > to_micro(line.charge) * line.weight // line.weights


def _idle(factors: IncomeFactors) -> list[IdleRow]:
    return [
        IdleRow(gpu_type, InstantUs(step.at_us), step.own, step.total)
        for gpu_type, steps in factors.steps.items()
        for step in steps
    ]
