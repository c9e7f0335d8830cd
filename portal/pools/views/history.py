"""The history of a pool: use, fair share and throughput over time, and leases that ended early."""

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.charts.deficits import has_deficits
from portal.charts.explore.spans import DAY, older_days
from portal.common.access import access, pool_or_404, signed_in
from portal.common.clocks import clocks, pool_now
from portal.common.trades import trade_rows, trades_title
from portal.pools.text.labels import units_text
from portal.pools.text.pool import badges_of, deficit_rows, history_context
from portal.pools.text.preemptions import preemption_context
from portal.pools.text.throughput import throughput_context
from scheduling.selectors.jobs.preemptions import list_preemptions
from scheduling.selectors.pools.now import PoolOverview, pool_overview
from scheduling.selectors.pools.throughput import read_throughput
from scheduling.selectors.rounds.histories import joined, pool_history
from scheduling.selectors.rounds.lists import round_instants
from scheduling.selectors.sharing.trades import list_trades
from scheduling.selectors.visibility import read_visibility
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope

OLDER_POINTS = 80
POINTS = 120
# Maximum numbers of preemptions and moves, and of trades, on the page.
EARLY = 12
TRADES = 8


@signed_in
@require_safe
def history(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a pool's charts by tenant, its last early ends of leases, and its last trades."""
    facts = pool_or_404(request, name)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        now = pool_now(facts).pool_at
        view = pool_overview(facts.id, visibility)
        of = _gpu_type(request, view)
        older = pool_history(facts.id, visibility, gpu_type=of, **older_days(now, OLDER_POINTS))
        day = pool_history(facts.id, visibility, since=now - DAY, points=POINTS, gpu_type=of)
        # With one GPU type, throughput equals the GPUs in use.
        is_mixed = len(view.types) > 1
        throughput = read_throughput(facts.id, visibility, since=now - DAY) if is_mixed else None
        early, more_early = list_preemptions(facts.id, visibility, limit=EARLY)
        traded, more_trades = list_trades(facts.id, visibility, limit=TRADES)
        named = {*(row.round for row in early), *(row.round for row in traded)}
        anchors = round_instants(facts.id, named)
    badges, times = badges_of(view), clocks(facts, anchors)
    is_operator = may_on_site(access(request).site_role, Action.OPERATE)
    context = {
        **history_context(joined([older, day]), badges, view, name, now, gpu_type=of),
        "deficits": (deficit_rows(day, badges, now) if is_operator and has_deficits(facts) else []),
        **throughput_context(throughput, badges, name, now),
        **preemption_context(early, times, more=more_early),
        "trades": trade_rows(traded, times),
        "trades_title": trades_title(traded, more=more_trades),
        "pool": facts,
        "units": units_text(facts),
        "visibility": visibility,
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/history.html", context)


def _gpu_type(request: HttpRequest, view: PoolOverview) -> str:
    """Return the GPU type of the charts; empty for all types, or if the pool has only one."""
    name = request.GET.get("gpu_type", "")
    names = [one.name for one in view.types]
    if name and name not in names:
        raise Http404
    return name if len(names) > 1 else ""
