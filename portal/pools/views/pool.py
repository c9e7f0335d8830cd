"""The pool page: the GPU map, the table of tenants, and unused GPUs of the last rounds."""

from dataclasses import dataclass
from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.charts.deficits import has_deficits
from portal.charts.explore.spans import DAY, older_days
from portal.charts.notes import Instant
from portal.common.access import access, pool_or_404, pools_of_tenant, signed_in
from portal.common.clocks import clocks, pool_now
from portal.common.quota_promises import pool_promise_text
from portal.common.trades import trade_rows, trades_title
from portal.pools.text.planned import planned_context
from portal.pools.text.pool import (
    badges_of,
    deficit_rows,
    history_context,
    pool_context,
    strip_title,
)
from portal.pools.text.preemptions import preemption_context
from portal.pools.text.throughput import throughput_context
from scheduling.models import MaintenanceWindow
from scheduling.selectors.deadlines.planned_jobs import list_planned_jobs
from scheduling.selectors.jobs.preemptions import list_preemptions
from scheduling.selectors.pools.executors import silent_pools
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import windows_near
from scheduling.selectors.pools.now import PoolOverview, pool_overview
from scheduling.selectors.pools.throughput import read_throughput
from scheduling.selectors.rounds.histories import joined, pool_history
from scheduling.selectors.rounds.lists import round_instants
from scheduling.selectors.sharing.trades import list_trades
from scheduling.selectors.visibility import read_visibility
from tenants.permissions import Action, may_in_tenant, may_on_site
from tenants.scopes import site_scope

OLDER_POINTS = 80
POINTS = 120
NAMED = 5
# Maximum numbers of preemptions and moves, trades, and planned leases on the page.
EARLY = 12
TRADES = 8
PLANNED = 12


@signed_in
@require_safe
def pool(request: HttpRequest, name: str) -> HttpResponseBase:
    facts = pool_or_404(request, name)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        now = pool_now(facts).pool_at
        windows = windows_near(facts, now)
        view = pool_overview(facts.id, visibility, away={row.node_id for row in windows})
        of = _gpu_type(request, view)
        older = pool_history(facts.id, visibility, gpu_type=of, **older_days(now, OLDER_POINTS))
        day = pool_history(facts.id, visibility, since=now - DAY, points=POINTS, gpu_type=of)
        # With one GPU type, throughput equals the GPUs in use.
        is_mixed = len(view.types) > 1
        throughput = read_throughput(facts.id, visibility, since=now - DAY) if is_mixed else None
        early, more_early = list_preemptions(facts.id, visibility, limit=EARLY)
        traded, more_trades = list_trades(facts.id, visibility, limit=TRADES)
        planned, more_planned = list_planned_jobs(facts.id, visibility, at=now, limit=PLANNED)
        named = {*(row.round for row in early), *(row.round for row in traded)}
        anchors = round_instants(facts.id, named)
        silent = silent_pools([facts.id])
    badges, is_operator = badges_of(view), may_on_site(access(request).site_role, Action.OPERATE)
    times = clocks(facts, anchors)
    tells = is_operator and has_deficits(facts)
    context = {
        **pool_context(name, view, badges),
        "strip_title": strip_title(view.rounds, facts.unit),
        "price_unit": f"credits per {facts.unit}-hour",
        **history_context(joined([older, day]), badges, view, name, now, gpu_type=of),
        "deficits": deficit_rows(day, badges, now) if tells else [],
        **throughput_context(throughput, badges, name, now),
        **preemption_context(early, times, more=more_early),
        **planned_context(planned, times, more=more_planned),
        "trades": trade_rows(traded, times),
        "trades_title": trades_title(traded, more=more_trades),
        "swaps": any(claim.swapped for row in view.types for claim in row.claims),
        "promise": pool_promise_text(facts),
        "maintenance": _maintenance(facts, windows),
        "silent": silent,
        "names_pool": False,
        "pool": facts,
        "visibility": visibility,
        "may_simulate": is_operator,
        "submits_for": _submitting_tenant(request, name),
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/pool.html", context)


def _submitting_tenant(request: HttpRequest, pool: str) -> str:
    """Return the viewer's tenant if they may submit for it to this pool, else empty."""
    who = access(request)
    if who.home is None or not may_in_tenant(who, Action.SUBMIT, who.home.tenant_id):
        return ""
    return who.home.slug if pool in pools_of_tenant(request, who.home.tenant_id) else ""


def _gpu_type(request: HttpRequest, view: PoolOverview) -> str:
    """Return the GPU type of the charts; empty for all types, or if the pool has only one."""
    name = request.GET.get("gpu_type", "")
    names = [one.name for one in view.types]
    if name and name not in names:
        raise Http404
    return name if len(names) > 1 else ""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Nodes in maintenance at the same time for the same reason: one banner."""

    nodes: tuple[str, ...]
    starts: Instant | None
    begun: bool
    ends_at: datetime
    reason: str

    @property
    def names(self) -> str:
        """Return up to five nodes by name, and the number of the others."""
        if len(self.nodes) <= NAMED:
            return ", ".join(self.nodes)
        return f"{', '.join(self.nodes[:NAMED])} and {len(self.nodes) - NAMED} more"


def _maintenance(facts: PoolFacts, windows: list[MaintenanceWindow]) -> list[Maintenance]:
    """Return a banner per group of nodes with equal window and reason, the next one first."""
    times = clocks(facts)
    groups: dict[tuple[datetime, datetime, str], list[str]] = {}
    for row in windows:
        names = groups.setdefault((row.starts_at, row.ends_at, row.reason), [])
        names.append(row.node.name)
    return [
        Maintenance(tuple(names), times.instant(starts), starts <= times.now.pool_at, ends, reason)
        for (starts, ends, reason), names in groups.items()
    ]
