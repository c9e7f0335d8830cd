"""What a tenant earned by lending, and how all tenants' income stands, for the REST API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.contribution_schemas import (
    ContributionAnswer,
    IncomeLinePage,
    RevenueFairnessAnswer,
)
from billing.api.usage import FIRST_YEAR, Charges
from billing.selectors.contribution import (
    Contribution,
    IncomeLine,
    contribution,
    income_lines,
    named_sums,
)
from billing.selectors.quota_use import QUOTA_USE_MOST, CountedQuota, counted_quota
from billing.selectors.revenue import alpha_item, revenue_history
from billing.selectors.statements import HOUR
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.units import HOUR_US
from scheduling.api.base import SchedulingView
from scheduling.api.schemas import POOL, SINCE, TENANT, UNTIL
from scheduling.engine.clock import read_clock
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.answers import credits_text, plain
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import PAGE
from tenants.api.times import read_time, time_text
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.quotas import pools_of

DEFAULT, LONGEST = timedelta(days=7), timedelta(days=400)
MICRO_HOURS = 10**6
ZERO = Decimal("0.000000")
STRETCH = [TENANT, POOL, SINCE, UNTIL]


@dataclass(frozen=True, slots=True)
class AskedTime:
    """A stretch of a pool's time."""

    since: datetime
    until: datetime


class ContributionView(SchedulingView):
    """Whose income is asked for, of which pool and of which time."""

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

    def asked_time(self, request: Request, facts: PoolFacts) -> AskedTime:
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
        return AskedTime(since, until)


class ContributionShow(ContributionView):
    """A tenant's income from lending."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until")

    @extend_schema(
        operation_id="contribution_show",
        responses={200: ContributionAnswer},
        parameters=STRETCH,
    )
    def get(self, request: Request) -> Response:
        """Show what a tenant earned by lending in a pool, against the ledger, and its idle quota.

        A line counts when its hour of pool time closes. Without `since` and `until`: the last seven
        days.
        """
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked = self.asked_time(request, facts)
        times: Any = {"since": asked.since, "until": asked.until}
        is_counted = asked.until - asked.since <= QUOTA_USE_MOST
        with tenant_scope(tenant.pk):
            shown = contribution(tenant.pk, facts.id, facts.book, **times)
            counted = counted_quota(tenant.pk, facts.id, **times) if is_counted else None
            history = revenue_history(facts.id, **times)
            visibility = read_visibility(facts.id, self.access)
            currency = Charges().currency(facts.book)
        return Response(
            {
                "tenant": tenant.slug,
                "pool": facts.name,
                "since": time_text(asked.since),
                "until": time_text(asked.until),
                "currency": currency,
                **_sums(shown, tenant, visibility),
                "quota_use": _quota_use(counted),
                "quota_counted_until": time_text(counted.until) if counted else None,
                "alpha": _number(history.whole.alpha.get(tenant.pk)) if history else None,
                "full_alpha": _number(history.whole.full_alpha.get(tenant.pk)) if history else None,
            }
        )


class IncomeLines(ContributionView):
    """The lines of a tenant's income from lending."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="contribution_lines",
        responses={200: IncomeLinePage},
        parameters=[*STRETCH, *PAGE],
    )
    def get(self, request: Request) -> Response:
        """List what each borrowed term brought a lender, newest first, with every factor."""
        tenant = self.asked_tenant()
        facts = self.asked_pool(tenant)
        asked, limit = self.asked_time(request, facts), read_limit(request)
        route = f"contribution.{facts.id}"
        key = read_cursor(request, route, parts=2)
        with tenant_scope(tenant.pk):
            lines = income_lines(
                tenant.pk,
                facts.id,
                facts.book,
                since=asked.since,
                until=asked.until,
                before=(from_us(key[0] * HOUR_US), key[1]) if key else None,
                limit=limit + 1,
            )
            visibility = read_visibility(facts.id, self.access)
        following = None
        if len(lines) > limit:
            hour, number = lines[limit - 1].key
            following = make_cursor(route, to_us(hour) // HOUR_US, number)
        rows = [_line(line, tenant, visibility) for line in lines[:limit]]
        return Response({"results": rows, "next": following})


class RevenueFairness(ContributionView):
    """alpha of every tenant of a pool, for those who see all money."""

    query: ClassVar[tuple[str, ...]] = ("since", "until")

    @extend_schema(
        operation_id="revenue_fairness",
        responses={200: RevenueFairnessAnswer},
        parameters=[SINCE, UNTIL],
    )
    def get(self, request: Request, name: str) -> Response:
        """Show alpha of all tenants of a pool, for operators, finance and auditors.

        The part of the income from lending over the part of the quota, in settled hours.
        """
        if not self.sees_all(Action.SEE_MONEY):
            raise not_there()
        facts = self.pool(name)
        asked = self.asked_time(request, facts)
        with site_scope():
            history = revenue_history(facts.id, since=asked.since, until=asked.until)
            known = read_visibility(facts.id, self.access).known
            names = {tenant_id: seen.name for tenant_id, seen in known.items()}
            currency = Charges().currency(facts.book)
        rows = (
            [alpha_item(history.whole, one, names.get(one)) for one in history.whole.parts]
            if history
            else []
        )
        return Response(
            {
                "pool": facts.name,
                "since": time_text(asked.since),
                "until": time_text(history.until if history else asked.since),
                "currency": currency,
                "results": plain(rows),
            }
        )


def _sums(shown: Contribution, tenant: Tenant, visibility: Visibility) -> dict[str, Any]:
    return {
        "lines": shown.total.lines,
        "lent_gpu_h": f"{shown.total.lent_gpu_h:f}",
        "earned": credits_text(shown.total.earned),
        "borne": credits_text(shown.total.borne),
        "reconciliation": plain(shown.reconciliation),
        "by_day": plain(named_sums(shown.periods, time_text)),
        "by_gpu_type": plain(named_sums(shown.gpu_types, str)),
        "by_borrower": plain(
            named_sums(shown.borrowers, lambda borrower: _borrower(borrower, tenant, visibility))
        ),
    }


def _borrower(tenant_id: Any, tenant: Tenant, visibility: Visibility) -> str | None:
    """How a borrower is named to the caller; None: not."""
    if tenant_id == tenant.pk:
        return tenant.name
    seen = visibility.of(tenant_id)
    return seen.name if seen else None


def _quota_use(counted: CountedQuota | None) -> list[dict[str, str]] | None:
    if counted is None:
        return None
    return [
        {
            "gpu_type": name,
            "quota_gpu_h": _hours(use.quota_us),
            "own_gpu_h": _hours(use.own_us),
            "lent_gpu_h": _hours(use.lent_us),
            "kept_gpu_h": _hours(use.kept_us),
            "free_gpu_h": _hours(use.free_us),
            "without_gpu_h": _hours(use.without_gpu_us),
        }
        for name, use in counted.by_type.items()
    ]


def _hours(gpu_us: int | Fraction) -> str:
    """GPU-microseconds as GPU-hours with six places."""
    return f"{Decimal(round(Fraction(gpu_us * MICRO_HOURS) / HOUR_US)) / MICRO_HOURS:.6f}"


def _number(alpha: Fraction | None) -> float | None:
    return None if alpha is None else float(alpha)


def _line(line: IncomeLine, tenant: Tenant, visibility: Visibility) -> dict[str, Any]:
    share = line.share
    return {
        "counted_at": time_text(line.hour + HOUR),
        "round": line.round,
        "gpu_type": line.gpu_type,
        "borrower": _borrower(line.borrower_id, tenant, visibility) or "another tenant",
        "job": str(line.job_uid) if visibility.jobs_of(line.borrower_id) else None,
        "lease": line.lease,
        "term": line.term,
        "starts_at": time_text(line.starts_at),
        "ends_at": time_text(line.ends_at),
        "gpus": line.gpus,
        "price": credits_text(line.price),
        "carried": None if line.carried is None else f"{line.carried:f}",
        "charge": credits_text(line.charge),
        "own_part": f"{share.part:f}",
        "own_part_exact": share.fraction,
        "lent_gpu_h": f"{share.lent_gpu_h:f}",
        "earned": credits_text(share.amount),
        "transfer": str(line.transfer) if line.transfer else None,
        "charged_until": time_text(line.charged_until),
        "borne": credits_text(line.borne),
        "earned_borne": credits_text(line.share_borne),
    }
