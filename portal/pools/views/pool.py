"""The pool page: the GPU map, the table of tenants, and unused GPUs of the last rounds."""

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.charts.figures import thousands
from portal.charts.notes import Instant
from portal.common.access import access, pool_or_404, pools_of_tenant, signed_in
from portal.common.clocks import clocks, pool_now
from portal.common.quota_promises import pool_promise_text
from portal.pools.text.labels import price_unit, units_text
from portal.pools.text.planned import planned_context
from portal.pools.text.pool import badges_of, pool_context, strip_title
from scheduling.models import MaintenanceWindow
from scheduling.selectors.deadlines.planned_jobs import list_planned_jobs
from scheduling.selectors.pools.executors import silent_pools
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import windows_near
from scheduling.selectors.pools.now import pool_overview
from scheduling.selectors.visibility import read_visibility
from tenants.permissions import Action, may_in_tenant, may_on_site
from tenants.scopes import site_scope

NAMED = 5
PLANNED = 12  # leases planned for jobs with deadlines


@signed_in
@require_safe
def pool(request: HttpRequest, name: str) -> HttpResponseBase:
    facts = pool_or_404(request, name)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        now = pool_now(facts).pool_at
        windows = windows_near(facts, now)
        view = pool_overview(facts.id, visibility, away={row.node_id for row in windows})
        planned, more_planned = list_planned_jobs(facts.id, visibility, at=now, limit=PLANNED)
        silent = silent_pools([facts.id])
    context = {
        **pool_context(name, view, badges_of(view)),
        "strip_title": strip_title(view.rounds, facts.unit),
        "price_unit": price_unit(facts),
        "units": units_text(facts),
        **planned_context(planned, clocks(facts), more=more_planned),
        "swaps": any(claim.swapped for row in view.types for claim in row.claims),
        "promise": pool_promise_text(facts),
        "maintenance": _maintenance(facts, windows),
        "silent": silent,
        "names_pool": False,
        "pool": facts,
        "visibility": visibility,
        "may_simulate": may_on_site(access(request).site_role, Action.OPERATE),
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


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Nodes in maintenance at the same time for the same reason: one banner."""

    nodes: tuple[str, ...]
    starts: Instant | None
    begun: bool
    ends: Instant | None
    reason: str

    @property
    def names(self) -> str:
        """Return up to five nodes by name, and the number of the other nodes."""
        if len(self.nodes) <= NAMED:
            return ", ".join(self.nodes)
        return _("{names} and {count} more").format(
            names=", ".join(self.nodes[:NAMED]), count=thousands(len(self.nodes) - NAMED)
        )


def _maintenance(facts: PoolFacts, windows: list[MaintenanceWindow]) -> list[Maintenance]:
    """Return a banner per group of nodes with equal window and reason, the next one first."""
    times = clocks(facts)
    groups: dict[tuple[datetime, datetime, str], list[str]] = {}
    for row in windows:
        names = groups.setdefault((row.starts_at, row.ends_at, row.reason), [])
        names.append(row.node.name)
    return [
        Maintenance(
            tuple(names),
            times.instant(starts),
            starts <= times.now.pool_at,
            times.instant(ends),
            reason,
        )
        for (starts, ends, reason), names in groups.items()
    ]
