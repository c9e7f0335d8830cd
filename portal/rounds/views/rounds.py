"""The list of rounds, and a round: its decision, its numbers, and how to recompute it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from evenshare_core.policies.registry import missing_text
from evenshare_core.units import MILLISECOND_US
from portal.common.access import access, pool_or_404, signed_in
from portal.common.clocks import Clocks, clocks, pool_now
from portal.common.lists import key_asked
from portal.common.trades import trade_rows, trades_title
from portal.common.verify import round_panel
from portal.rounds.text import round as round_text
from portal.rounds.text.body import round_body, share_context, verdict_context
from portal.rounds.text.certificate import round_certificate
from portal.rounds.text.chain import chain_context
from portal.rounds.text.declared import overclaim_context
from portal.rounds.text.row_tables import (
    FIRST,
    PAGE,
    TABLES,
    TableSource,
    round_tables,
    table_name,
)
from portal.rounds.text.tables import list_row, list_strip, list_title
from scheduling.models import Round
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.bundles import read_place
from scheduling.selectors.rounds.certificates import view_certificate
from scheduling.selectors.rounds.lists import rounds_page
from scheduling.selectors.rounds.one_round import RoundView, round_view
from scheduling.selectors.rounds.rows import RowSlice
from scheduling.selectors.stored_texts import STORED
from scheduling.selectors.visibility import read_visibility
from tenants.scopes import site_scope

LISTED = 12  # rounds on a page of the list
DRAWN = 60  # rounds in the strip of its first page


def _anchors(rounds: Sequence[Round]) -> list[tuple[Any, Any, int]]:
    return [(row.at, row.wall_at, row.scale) for row in rounds]


@signed_in
@require_safe
def round_list(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show rounds, newest first, paged by key."""
    facts = pool_or_404(request, name)
    before, after = key_asked(request), key_asked(request, "after")
    with site_scope():
        limit = LISTED if before or after else DRAWN
        drawn = rounds_page(facts.id, before=before, after=after, limit=limit)
    page = drawn if before or after else drawn.newest(LISTED)
    times = clocks(facts, _anchors(page.rows))
    context = {
        "pool": facts,
        "page": page,
        "strip": list_strip(facts.name, drawn.rows) if page.newer is None else "",
        "drawn": len(drawn.rows),
        "rows": [list_row(row, times) for row in page.rows],
        "sums": {key: page.total(key) for key in ("granted", "renewed", "ended")},
        "title": list_title(page),
        "step_s": facts.round_s * facts.clock.scale,
        "nav_key": "rounds",
        # Only the newest page changes with a round.
        "live": not request.GET,
    }
    return render(request, "rounds/round_list.html", context)


@signed_in
@require_safe
def round_page(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Show a round as the viewer may see it."""
    facts = pool_or_404(request, name)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        view = round_view(facts.id, number, visibility, RowSlice(FIRST))
        seen = view_certificate(view.round, visibility) if view else None
        place = read_place(facts.id, number) if view else None
        head = (place.size, place.root) if place else (0, "")
        verify = round_panel(facts, number, head, access(request))
    if view is None:
        raise Http404
    panel = round_certificate(view, seen)
    chain = chain_context(facts, number, place, verify)
    times = _clocks(facts, view)
    context = {
        **_head(facts, view, times),
        **round_body(view, facts.name, times),
        **overclaim_context(seen),
        **chain,
        **verdict_context(panel, chain["chain_state"]),
        "tables": round_tables(TableSource(facts.name, view, seen, times)),
        "visibility": visibility,
        "certificate": panel,
        "nav_key": "rounds",
    }
    if chain["bundle_url"]:
        context["recompute_command"] = ""  # the page has a command for this round
    return render(request, "rounds/round.html", context)


@signed_in
@require_safe
def round_rows(request: HttpRequest, name: str, number: int, table: str) -> HttpResponseBase:
    """Show a page of a round's table, from the row number `from` on."""
    facts = pool_or_404(request, name)
    start = (key_asked(request, "from") or 1) - 1
    if start < 0 or (table != "shares" and table not in TABLES):
        raise Http404
    rows = RowSlice(PAGE, table, start, is_own=request.GET.get("own") == "1")
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        view = round_view(facts.id, number, visibility, rows)
        seen = view_certificate(view.round, visibility) if view else None
    if view is None:
        raise Http404
    context: dict[str, Any] = {
        "pool": facts,
        "round": view.round,
        "name": table,
        "place": table_name(table),
    }
    if table == "shares":
        part = view.shares[start : start + PAGE]
        if start and not part:
            raise Http404
        shares = share_context(view, part, facts.name, start=start, is_page=True)
        context |= {"shares": shares, "title": shares["title"]}
    else:
        source = TableSource(facts.name, view, seen, _clocks(facts, view), rows)
        if (made := TABLES[table](source)) is None or (start and not made.rows):
            raise Http404
        context |= {"table": made, "title": made.title, "is_own": rows.is_own}
    context |= {"visibility": visibility, "nav_key": "rounds"}
    return render(request, "rounds/round_rows.html", context)


def _clocks(facts: PoolFacts, view: RoundView) -> Clocks:
    return clocks(facts, _anchors([row for row in (view.previous, view.round, view.next) if row]))


def _head(facts: PoolFacts, view: RoundView, times: Clocks) -> dict[str, Any]:
    now = pool_now(facts)
    due = (facts.checked_at or now.pool_at) + timedelta(seconds=facts.round_s * now.scale)
    return {
        "pool": facts,
        "view": view,
        "round": view.round,
        "missing_policy": STORED.shown(missing_text(view.round.policy)),
        "trades": trade_rows(view.trades[:FIRST], times),
        "trades_title": trades_title(view.trades),
        "sum": view.round.summary,
        "at": times.instant(view.round.at),
        "due": None if view.next or now.paused else times.instant(max(due, now.pool_at)),
        "granted_note": round_text.applied_note(view, "grants", "grant", _("Leases granted")),
        "renewed_note": round_text.applied_note(view, "renewals", "renewal", _("Leases renewed")),
        "ended_note": round_text.applied_note(view, "ends", "end", _("Leases ended")),
        "waiting": round_text.waiting_text(view.round),
        "idle": round_text.idle_text(view.round, view.decision),
        "decide_ms": view.round.decide_us / MILLISECOND_US,
        "snapshot_ms": view.round.snapshot_us / MILLISECOND_US,
    }
