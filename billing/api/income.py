"""REST views of lending incomes with all their factors, and of the account that receives them.

From them `evenshare statement verify` recomputes a tenant's income.
"""

from operator import itemgetter
from typing import ClassVar

from billing.api.base import STRETCH, MoneyView
from billing.api.contribution import IncomePart, IncomeView
from billing.selectors.entries import account_entries
from billing.selectors.factors import IncomeFactors, LineFactors, income_factors
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
from scheduling.selectors.visibility import OTHER_TENANT, Visibility
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.resources import PAGE, Listed, Page, page_of
from tenants.models import Tenant
from tenants.scopes import tenant_scope

OPERATOR_NAME = "operator"


class IncomeList(IncomeView):
    """List a tenant's incomes from lending in a pool, newest first, with every factor.

    An income counts when its hour of pool time closes. `idle` lists the intervals of idle quota
    over the time of the page's rows, in order. A row is computed from the intervals of its GPU type
    between its `counts_from` and `counts_until`. The default range is the last seven days.
    """

    address = "income"
    operation = "income_list"
    row = IncomeRow
    about = "A page of incomes, and idle quota over the time of all of them."
    beside: ClassVar = {"idle": answer_serializer(IdleRow)(many=True)}

    def shown(self, part: IncomePart) -> Page:
        factors = income_factors(part.tenant.pk, part.facts.id, part.lines)
        rows = [_income(row, part.tenant, part.facts, part.visibility) for row in factors.lines]
        return Page(rows, tail={"idle": plain(_idle(factors))})


class EntryList(Listed, MoneyView):
    """List the transfers that moved a tenant's credits for a pool, newest first.

    Transfers are selected by their effective time in [`since`, `until`) of the pool's time, by
    default the last seven days.
    """

    address = "entries"
    operation = "entry_list"
    row = EntryRow
    about = "A page of an account's transfers."
    parameters = (*STRETCH, *PAGE)

    def page(self) -> Page:
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked, limit = self.asked_time(facts), self.limit
        before = self.before("entries", facts.id)
        with tenant_scope(tenant.pk):
            entries = account_entries(
                *(tenant.pk, facts.id, facts.book),
                since=asked.since,
                until=asked.until,
                before=before,
                limit=limit + 1,
            )
        return page_of(entries, limit, lambda one: [one[0]], itemgetter(1))


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
