"""The pool page: who is where, as a map and as a table, and what the last rounds left unused."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.charts.notes import Instant
from portal.pools.text.pool import badges_of, history_context, pool_context, strip_title
from portal.pools.text.throughput import throughput_context
from portal.site.access import access, pool_or_404, signed_in
from portal.site.clocks import clocks, pool_now
from scheduling.models import MaintenanceWindow
from scheduling.selectors.histories import joined, pool_history
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.operate import windows_ahead
from scheduling.selectors.pools import (
    pool_overview,
)
from scheduling.selectors.throughput import read_throughput
from scheduling.selectors.visibility import read_visibility
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope

DAY, WEEK = timedelta(hours=24), timedelta(days=7)
OLDER_POINTS = 80
POINTS = 120


@signed_in
@require_safe
def pool(request: HttpRequest, name: str) -> HttpResponseBase:
    """One pool at this moment."""
    facts = pool_or_404(request, name)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        view = pool_overview(facts.id, visibility)
        now = pool_now(facts).pool_at
        windows = windows_ahead(facts.id, now)
        history = joined(
            [
                pool_history(
                    facts.id,
                    visibility,
                    since=now - WEEK,
                    until=now - DAY,
                    points=OLDER_POINTS,
                ),
                pool_history(facts.id, visibility, since=now - DAY, points=POINTS),
            ]
        )
        throughput = read_throughput(facts.id, visibility, since=now - DAY)
    badges = badges_of(view)
    context = {
        **pool_context(name, view, badges),
        "strip_title": strip_title(view.rounds, facts.unit),
        "price_unit": f"credits per {facts.unit}-hour",
        **history_context(history, badges, view, name, now),
        **throughput_context(throughput, badges, name, now),
        "maintenance": _maintenance(facts, windows),
        "pool": facts,
        "visibility": visibility,
        "may_simulate": may_on_site(access(request).site_role, Action.OPERATE),
        "nav_key": "pool",
        "live": True,
    }
    return render(request, "pools/pool.html", context)


def _maintenance(
    facts: PoolFacts, windows: list[MaintenanceWindow]
) -> list[tuple[MaintenanceWindow, Instant | None, Instant | None]]:
    """Windows that run, or that keep new leases away already, with the instants of their banner."""
    times = clocks(facts)
    near = times.now.pool_at + timedelta(seconds=facts.lease_s + facts.round_s * times.now.scale)
    return [
        (row, times.instant(row.starts_at), times.instant(row.ends_at))
        for row in windows
        if row.starts_at < near
    ]
