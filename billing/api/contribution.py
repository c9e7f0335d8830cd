"""REST views of a tenant's lending income, and of the income of all tenants."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, NamedTuple

from billing.api.base import STRETCH, MoneyView
from billing.api.usage import Charges
from billing.selectors.contribution import (
    IncomeSumRow,
    ReconciliationRow,
    contribution,
    named_sums,
)
from billing.selectors.income import IncomeLine, income_lines, visible_lines
from billing.selectors.quota_use import QUOTA_USE_MOST, QuotaUseItem, counted_quota
from billing.selectors.revenue import AlphaItem, alpha_item, revenue_history
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.units import HOUR_US
from scheduling.api.schemas import SINCE, UNTIL
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.answers import Answer, about, answer_of, formatted_as, time_text
from tenants.api.base import Who
from tenants.api.problems import not_there
from tenants.api.resources import PAGE, Listed, Page, Shown
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope


class ContributionAnswer(Answer, frozen=True):
    """A tenant's income from lending in a pool in [since, until) of pool time."""

    tenant: str
    pool: str
    since: datetime
    until: datetime
    currency: str
    lines: int
    lent_gpu_h: Annotated[Decimal, formatted_as("{:f}".format, type="string")]
    earned: Decimal
    borne: Annotated[
        Decimal, about("Part of `earned` that the operator paid because rounds were late.")
    ]
    reconciliation: ReconciliationRow
    by_day: tuple[IncomeSumRow, ...]
    by_gpu_type: tuple[IncomeSumRow, ...]
    by_borrower: tuple[IncomeSumRow, ...]
    quota_use: Annotated[
        tuple[QuotaUseItem, ...] | None,
        about("null: the period is longer than 31 days."),
    ]
    quota_counted_until: datetime | None
    alpha: Annotated[
        float | None,
        about(
            "Its part of the pool's lending income divided by its part of the quota, in settled"
            " hours; null if no tenant earned anything or nothing is settled."
        ),
    ]
    full_alpha: Annotated[
        float | None,
        about(
            "The same with utility (value of completed jobs) + income - cost as income. null: no"
            " job with a declared value completed."
        ),
    ]


class RevenueFairnessAnswer(Answer, frozen=True):
    """The alpha of every tenant of a pool in the settled hours of [since, until)."""

    pool: str
    since: datetime
    until: Annotated[datetime, about("End of the settled part of the range.")]
    currency: str
    results: tuple[AlphaItem, ...]


class ContributionShow(Shown, MoneyView):
    """Show a tenant's income from lending in a pool, its reconciliation, and its idle quota.

    A line counts when its hour of pool time closes. The default range is the last seven days.
    """

    address = "contribution"
    operation = "contribution_show"
    answer = ContributionAnswer
    parameters = STRETCH

    def show(self) -> ContributionAnswer:
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked = self.asked_time(facts)
        times: Any = {"since": asked.since, "until": asked.until}
        is_counted = asked.until - asked.since <= QUOTA_USE_MOST
        with tenant_scope(tenant.pk):
            shown = contribution(tenant.pk, facts.id, facts.book, **times)
            counted = counted_quota(tenant.pk, facts.id, **times) if is_counted else None
            history = revenue_history(facts.id, **times)
            visibility = read_visibility(facts.id, self.access)
            currency = Charges().currency(facts.book)
        borrowers = named_sums(shown.borrowers, partial(_borrower, tenant, visibility))
        return answer_of(
            ContributionAnswer,
            shown.total,
            tenant=tenant.slug,
            pool=facts.name,
            **times,
            currency=currency,
            reconciliation=shown.reconciliation,
            by_day=tuple(named_sums(shown.periods, time_text)),
            by_gpu_type=tuple(named_sums(shown.gpu_types, str)),
            by_borrower=tuple(borrowers),
            quota_use=tuple(counted.rows) if counted else None,
            quota_counted_until=counted.until if counted else None,
            alpha=_number(history.whole.alpha.get(tenant.pk)) if history else None,
            full_alpha=_number(history.whole.full_alpha.get(tenant.pk)) if history else None,
        )


class IncomePart(NamedTuple):
    """A page of a tenant's income lines from a pool, and the visibility of other tenants."""

    tenant: Tenant
    facts: PoolFacts
    lines: list[IncomeLine]
    visibility: Visibility


class IncomeView(Listed, MoneyView):
    """A list of a tenant's income from a pool, newest first."""

    parameters = (*STRETCH, *PAGE)
    shows = ("UsageShare.amount",)
    # Returns a page's rows.
    shown: Callable[[IncomePart], Page]

    def page(self) -> Page:
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked, limit = self.asked_time(facts), self.limit
        key = self.after(self.address.partition("/")[0], facts.id, parts=2)
        with tenant_scope(tenant.pk):
            lines = income_lines(
                *(tenant.pk, facts.id, facts.book),
                since=asked.since,
                until=asked.until,
                before=(from_us(key[0] * HOUR_US), key[1]) if key else None,
                limit=limit + 1,
            )
            visibility = read_visibility(facts.id, self.access)
            shown = self.shown(IncomePart(tenant, facts, lines[:limit], visibility))
        if len(lines) <= limit:
            return shown
        hour, number = lines[limit - 1].key
        return shown._replace(following=(to_us(hour) // HOUR_US, number))


class IncomeLines(IncomeView):
    """List the income of a lender from each borrowed term, newest first, with all factors."""

    address = "contribution/lines"
    operation = "contribution_lines"
    row = IncomeLine
    about = "A page of income lines."

    def shown(self, part: IncomePart) -> Page:
        names = partial(_borrower, part.tenant, part.visibility)
        return Page(visible_lines(part.lines, names, part.visibility))


class RevenueFairness(Shown, MoneyView):
    """Show the alpha of all tenants of a pool, for operators, finance and auditors.

    A tenant's alpha is its share of the lending income divided by its share of the quota, in
    settled hours.
    """

    address = "pools/<slug:name>/revenue-fairness"
    operation = "revenue_fairness"
    who = Who.SITE
    answer = RevenueFairnessAnswer
    parameters = (SINCE, UNTIL)

    def show(self, name: str) -> RevenueFairnessAnswer:
        if not self.sees_all(Action.SEE_MONEY):
            raise not_there()
        facts = self.pool(name)
        asked = self.asked_time(facts)
        with site_scope():
            history = revenue_history(facts.id, since=asked.since, until=asked.until)
            known = read_visibility(facts.id, self.access).known
            names = {tenant_id: seen.name for tenant_id, seen in known.items()}
            currency = Charges().currency(facts.book)
        whole = history.whole if history else None
        rows = [alpha_item(whole, one, names.get(one)) for one in whole.parts] if whole else []
        return RevenueFairnessAnswer(
            pool=facts.name,
            since=asked.since,
            until=history.until if history else asked.since,
            currency=currency,
            results=tuple(rows),
        )


def _borrower(tenant: Tenant, visibility: Visibility, tenant_id: Any) -> str | None:
    """Return a borrower's name for the caller, or None if it is hidden."""
    if tenant_id == tenant.pk:
        return tenant.name
    seen = visibility.of(tenant_id)
    return seen.name if seen else None


def _number(alpha: Fraction | None) -> float | None:
    return None if alpha is None else float(alpha)
