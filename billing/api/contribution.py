"""What a tenant earned by lending, and how all tenants' income stands, for the REST API."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.usage import FIRST_YEAR, Charges, MoneyView
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
from scheduling.api.schemas import POOL, SINCE, TENANT, UNTIL
from scheduling.engine.clock import read_clock
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.answers import Answer, about, formatted_as, plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import PAGE, page_serializer
from tenants.api.times import read_time, time_text
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.quotas import pools_of

DEFAULT, LONGEST = timedelta(days=7), timedelta(days=400)
STRETCH = [TENANT, POOL, SINCE, UNTIL]


class ContributionAnswer(Answer, frozen=True):
    """What a tenant earned by lending in a pool in [since, until) of pool time."""

    tenant: str
    pool: str
    since: datetime
    until: datetime
    currency: str
    lines: int
    lent_gpu_h: Annotated[Decimal, formatted_as("{:f}".format, type="string")]
    earned: Decimal
    borne: Annotated[
        Decimal, about("What of `earned` the operator paid, because rounds were late.")
    ]
    reconciliation: ReconciliationRow
    by_day: tuple[IncomeSumRow, ...]
    by_gpu_type: tuple[IncomeSumRow, ...]
    by_borrower: tuple[IncomeSumRow, ...]
    quota_use: Annotated[
        tuple[QuotaUseItem, ...] | None,
        about("null: longer than 31 days, which are counted at most."),
    ]
    quota_counted_until: datetime | None
    alpha: Annotated[
        float | None,
        about(
            "Its part of the pool's income from lending over its part of the quota, in settled"
            " hours; null where nobody earned anything, or nothing is settled."
        ),
    ]
    full_alpha: Annotated[
        float | None,
        about(
            "The same with utilities: what completed jobs were worth, with income and less cost."
            " null: none that says what it is worth completed."
        ),
    ]


class RevenueFairnessAnswer(Answer, frozen=True):
    """alpha of every tenant of a pool in the settled hours of [since, until)."""

    pool: str
    since: datetime
    until: Annotated[datetime, about("As far as hours are settled.")]
    currency: str
    results: tuple[AlphaItem, ...]


class AskedIncome(NamedTuple):
    """A tenant's income from a pool in [since, until)."""

    tenant: Tenant
    facts: PoolFacts
    since: datetime
    until: datetime


class ContributionView(MoneyView):
    """Whose income is asked for, of which pool and of which time."""

    def asked_income(self, request: Request) -> AskedIncome:
        """Return what the query asks for.

        Raises:
            Problem: as `asked_tenant`, `asked_pool` and `asked_time`.
        """
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        return AskedIncome(tenant, facts, *self.asked_time(request, facts))

    def asked_lines(self, asked: AskedIncome, word: str) -> tuple[list[IncomeLine], str | None]:
        """Return a page of income lines, and the cursor of the next one; None: it is the last."""
        tenant, facts, since, until = asked
        limit, route = read_limit(self.request), f"{word}.{facts.id}"
        key = read_cursor(self.request, route, parts=2)
        lines = income_lines(
            *(tenant.pk, facts.id, facts.book),
            since=since,
            until=until,
            before=(from_us(key[0] * HOUR_US), key[1]) if key else None,
            limit=limit + 1,
        )
        if len(lines) <= limit:
            return lines, None
        hour, number = lines[limit - 1].key
        return lines[:limit], make_cursor(route, to_us(hour) // HOUR_US, number)

    def asked_pool(self, tenant: Tenant) -> PoolFacts:
        """Return the pool of the query, or the tenant's only one.

        Raises:
            Problem: 404 where the tenant has no quota in it, or 400 where one has to be named.
        """
        with site_scope():
            own = pools_of(tenant.pk)
        if self.request.query_params.get("pool", ""):
            facts = self.query_pool()
            if facts.id not in own:
                raise not_there()
            return facts
        mine = [facts for facts in self.pools() if facts.id in own]
        if len(mine) != 1:
            raise bad_field("pool", "is required", "GET /api/v1/pools lists your pools.")
        return mine[0]

    def asked_time(self, request: Request, facts: PoolFacts) -> tuple[datetime, datetime]:
        """Return `since` and `until` of the query; a week up to today unless it says.

        Raises:
            Problem: 400 where it is empty or longer than `LONGEST`.
        """
        since, until = read_time(request, "since"), read_time(request, "until")
        if until is None:
            with site_scope():
                now = read_clock(facts.id).pool_at
            until = datetime.combine(now.astimezone(UTC).date(), time(), UTC) + timedelta(days=1)
        for name, instant in (("since", since), ("until", until)):
            if instant is not None and instant.year <= FIRST_YEAR:
                raise bad_field(name, "is too long ago", f"Give one after {FIRST_YEAR}.")
        since = until - DEFAULT if since is None else since
        if since >= until:
            raise bad_field("until", "is not after `since`", "Give a later one.")
        if until - since > LONGEST:
            raise bad_field("since", "is too long before `until`", "Ask for 400 days at most.")
        return since, until


class ContributionShow(ContributionView):
    """A tenant's income from lending."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until")

    @extend_schema(
        operation_id="contribution_show",
        responses={200: answer_serializer(ContributionAnswer)},
        parameters=STRETCH,
    )
    def get(self, request: Request) -> Response:
        """Show what a tenant earned by lending in a pool, against the ledger, and its idle quota.

        A line counts when its hour of pool time closes. Without `since` and `until`: the last seven
        days.
        """
        tenant, facts, since, until = self.asked_income(request)
        times: Any = {"since": since, "until": until}
        is_counted = until - since <= QUOTA_USE_MOST
        with tenant_scope(tenant.pk):
            shown = contribution(tenant.pk, facts.id, facts.book, **times)
            counted = counted_quota(tenant.pk, facts.id, **times) if is_counted else None
            history = revenue_history(facts.id, **times)
            visibility = read_visibility(facts.id, self.access)
            currency = Charges().currency(facts.book)
        names = partial(_borrower, tenant, visibility)
        answer = ContributionAnswer(
            tenant=tenant.slug,
            pool=facts.name,
            since=since,
            until=until,
            currency=currency,
            lines=shown.total.lines,
            lent_gpu_h=shown.total.lent_gpu_h,
            earned=shown.total.earned,
            borne=shown.total.borne,
            reconciliation=shown.reconciliation,
            by_day=tuple(named_sums(shown.periods, time_text)),
            by_gpu_type=tuple(named_sums(shown.gpu_types, str)),
            by_borrower=tuple(named_sums(shown.borrowers, names)),
            quota_use=tuple(counted.rows) if counted else None,
            quota_counted_until=counted.until if counted else None,
            alpha=_number(history.whole.alpha.get(tenant.pk)) if history else None,
            full_alpha=_number(history.whole.full_alpha.get(tenant.pk)) if history else None,
        )
        return Response(plain(answer))


class IncomeLines(ContributionView):
    """The lines of a tenant's income from lending."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="contribution_lines",
        responses={200: page_serializer(IncomeLine, "A page of income lines.")},
        parameters=[*STRETCH, *PAGE],
    )
    def get(self, request: Request) -> Response:
        """List what each borrowed term brought a lender, newest first, with every factor."""
        asked = self.asked_income(request)
        tenant, facts = asked.tenant, asked.facts
        with tenant_scope(tenant.pk):
            lines, following = self.asked_lines(asked, "contribution")
            visibility = read_visibility(facts.id, self.access)
        rows = visible_lines(lines, partial(_borrower, tenant, visibility), visibility)
        return Response({"results": plain(rows), "next": following})


class RevenueFairness(ContributionView):
    """alpha of every tenant of a pool, for those who see all money."""

    query: ClassVar[tuple[str, ...]] = ("since", "until")

    @extend_schema(
        operation_id="revenue_fairness",
        responses={200: answer_serializer(RevenueFairnessAnswer)},
        parameters=[SINCE, UNTIL],
    )
    def get(self, request: Request, name: str) -> Response:
        """Show alpha of all tenants of a pool, for operators, finance and auditors.

        The part of the income from lending over the part of the quota, in settled hours.
        """
        if not self.sees_all(Action.SEE_MONEY):
            raise not_there()
        facts = self.pool(name)
        since, until = self.asked_time(request, facts)
        with site_scope():
            history = revenue_history(facts.id, since=since, until=until)
            known = read_visibility(facts.id, self.access).known
            names = {tenant_id: seen.name for tenant_id, seen in known.items()}
            currency = Charges().currency(facts.book)
        whole = history.whole if history else None
        answer = RevenueFairnessAnswer(
            pool=facts.name,
            since=since,
            until=history.until if history else since,
            currency=currency,
            results=tuple(alpha_item(whole, one, names.get(one)) for one in whole.parts)
            if whole
            else (),
        )
        return Response(plain(answer))


def _borrower(tenant: Tenant, visibility: Visibility, tenant_id: Any) -> str | None:
    """How a borrower is named to the caller; None: not."""
    if tenant_id == tenant.pk:
        return tenant.name
    seen = visibility.of(tenant_id)
    return seen.name if seen else None


def _number(alpha: Fraction | None) -> float | None:
    return None if alpha is None else float(alpha)
