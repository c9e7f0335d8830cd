"""A tenant's dashboard: quota, use, fair share, credits, the queue with reasons, and jobs."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from billing.selectors.accounts import account_summary
from evenshare_core.policies.registry import traits
from portal.charts.deficits import day_deficit, has_deficits
from portal.charts.explore.spans import DAY, older_days
from portal.charts.figures import duration
from portal.charts.notes import Link, Note
from portal.common.access import access, signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import clocks, pool_now
from portal.common.credit_text import budget_notice
from portal.common.quota_promises import pool_promise_text
from portal.common.starts import start_text
from portal.common.submit_links import submit_links
from portal.overview.text.board import Board, PoolUseRow
from portal.overview.text.dashboard import board_context, uses_title
from portal.overview.text.deadlines import dated_context
from portal.overview.text.others import others_context
from portal.overview.text.stats import fair_badge
from portal.overview.text.week import week_context
from scheduling.engine.executors.base import executor_traits
from scheduling.selectors.deadlines.planned_jobs import list_dated_jobs
from scheduling.selectors.jobs.idle import idle_leases
from scheduling.selectors.jobs.preemption_costs import read_tenant_cost
from scheduling.selectors.jobs.start_estimates import first_start
from scheduling.selectors.pools.executors import silent_pools
from scheduling.selectors.pools.lines import PoolFacts, pool_names_of_tenant, pools_named
from scheduling.selectors.pools.throughput import tenant_throughput
from scheduling.selectors.rounds.histories import claim_history
from scheduling.selectors.tenants import dashboard as read
from scheduling.selectors.tenants.others_shares import SharesCompared, compare_shares
from scheduling.selectors.tenants.pools import pool_uses
from scheduling.selectors.tenants.week import DAYS, read_served_days
from scheduling.selectors.visibility import read_visibility
from tenants.models import Tenant
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import tenant_scope

OLDER_POINTS = 120
# Maximum number of jobs with deadlines on the page, earliest first.
DATED = 8
IDLE = 3  # leases in the warning


@signed_in
@require_safe
def dashboard(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show a tenant's dashboard."""
    tenant = tenant_or_404(request, slug)
    pool = tenant_pool(request, tenant, request.GET.get("pool", ""))
    context: dict[str, Any] = {"tenant": tenant, "pool": pool, "nav_key": "overview", "live": True}
    context |= {"silent": [], "names_pool": False}
    if pool is not None:
        with tenant_scope(tenant.pk):
            board = _read(request, tenant, pool)
            context["uses"] = _all_pools(tenant, pool)
            context["silent"] = silent_pools([pool.id])
            context["counts"] = read.job_counts(pool.id, tenant.pk)
            context["idle_jobs"] = idle_leases(pool.id, tenant.pk, limit=IDLE)
            clock = clocks(pool)
            first = first_start(pool.id, tenant.pk, now=clock.now.pool_at)
            dated, more_dated = list_dated_jobs(
                pool.id, tenant.pk, at=clock.now.pool_at, limit=DATED
            )
            context["budget"] = budget_notice(tenant.pk, pool.book, clock.now.pool_at)
            context |= _week(tenant, pool, clock.now.pool_at)
            context |= others_context(_compared(tenant, board, pool))
        starts_url = reverse("starts", args=[pool.name])
        context |= board_context(board, clock)
        context["uses_title"] = uses_title(context["uses"])
        context |= submit_links(access(request), tenant, pool.name)
        context["may_ask_quota"] = may_in_tenant(access(request), Action.ASK_QUOTA, tenant.pk)
        here = pool.name if context["uses"] else ""
        context |= {
            "jobs_url": _jobs_url(tenant, here),
            "queue_url": _jobs_url(tenant, here, "pending"),
            "holding_url": _jobs_url(tenant, here, "holding"),
            "board": board,
            "clock": clock,
            **dated_context(dated, clock, more=more_dated),
            "first": first[0] if first else None,
            "first_start": start_text(first[1], clock, starts_url) if first else None,
            "lease_note": Note(
                _("Lease"),
                text=_(
                    "A lease lasts {time} of pool time; then a round renews it or gives the GPUs to"
                    " tenants further below their fair share."
                ).format(time=duration(pool.lease_s)),
            ),
        }
    return render(request, "overview/dashboard.html", context)


def _week(tenant: Tenant, pool: PoolFacts, at: datetime) -> dict[str, Any]:
    """Return the tenant's ended jobs and preemptions in the days up to `at`."""
    since = at - DAYS * DAY
    simulates = executor_traits(pool.executor).simulates
    cost = read_tenant_cost(pool.id, tenant.pk, since=since, simulates=simulates)
    return week_context(read_served_days(pool.id, tenant.pk, since=since, at=at), cost)


def _compared(tenant: Tenant, board: Board, pool: PoolFacts) -> SharesCompared | None:
    """Return the tenant's throughput with other shares, if the policy gives shares of GPU types."""
    if board.last is None or not board.moments or not traits(pool.policy).trades_types:
        return None
    return compare_shares(pool.id, board.last.number, tenant.pk, board.visibility)


def _jobs_url(tenant: Tenant, pool: str, state: str = "") -> str:
    asked = {name: value for name, value in (("pool", pool), ("state", state)) if value}
    url = reverse("job-list", args=[tenant.slug])
    return f"{url}?{urlencode(asked)}" if asked else url


def _all_pools(tenant: Tenant, pool: PoolFacts) -> list[PoolUseRow]:
    """Return the tenant in each of its pools; empty if it has only one."""
    names = pool_names_of_tenant(tenant.pk)
    if len(names) < 2:
        return []
    pools = {facts.id: facts for facts in pools_named(names)}
    uses = pool_uses(tenant.pk, {facts.id: pool_now(facts).pool_at for facts in pools.values()})
    return [
        PoolUseRow(pools[use.pool_id], use, fair_badge(use.rho), is_here=use.pool_id == pool.id)
        for use in uses
    ]


def _read(request: HttpRequest, tenant: Tenant, pool: PoolFacts) -> Board:
    now = clocks(pool).now.pool_at
    last = read.last_round(pool.id, tenant.pk)
    round_url = reverse("round", args=[pool.name, last.number]) if last else ""
    days = claim_history(pool.id, tenant.pk, since=now - DAY)
    return Board(
        name=tenant.name,
        you=tenant.pk in access(request).tenant_ids,
        now=now,
        visibility=read_visibility(pool.id, access(request)),
        last=last,
        quotas=read.quotas_now(pool.id, tenant.pk, now),
        runs=read.running_jobs(pool.id, tenant.pk),
        waits=read.waiting_jobs(pool.id, last.number, tenant.pk) if last else [],
        days=days,
        older=claim_history(pool.id, tenant.pk, **older_days(now, OLDER_POINTS)),
        money=account_summary(tenant.pk, pool.book, since=now - DAY),
        round_url=round_url,
        ledger_url=f"{reverse('ledger', args=[tenant.slug])}?pool={pool.name}",
        sharing_link=Link(
            _("Lending"), f"{reverse('sharing', args=[tenant.slug])}?pool={pool.name}"
        ),
        moments=tenant_throughput(pool.id, tenant.pk, since=now - DAY),
        promise=pool_promise_text(pool),
        may_be_preempted=traits(pool.policy).preempts_running,
        deficit=day_deficit(days, now) if has_deficits(pool) else None,
    )
