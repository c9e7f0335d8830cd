"""The list of rounds, and one round: what was decided, by which numbers, how to recompute it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.charts.bars import hash_bars, hash_groups
from portal.charts.figures import plural, thousands
from portal.charts.notes import Note, count_note
from portal.rounds.text import round as words
from portal.rounds.text.certificate import sheet, worth_context
from portal.site.access import access, pool_or_404, signed_in
from portal.site.clocks import Clocks, clocks, pool_now
from portal.site.tenant_marks import mark_of
from scheduling.models import Round
from scheduling.selectors.certificates import view_certificate
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.reasons import why
from scheduling.selectors.rounds import (
    LIMIT,
    EndRow,
    PickRow,
    RoundDecision,
    RoundsPage,
    RoundView,
    ShareRow,
    SkipGroup,
    round_view,
    rounds_page,
)
from scheduling.selectors.visibility import read_visibility
from tenants.scopes import site_scope

ITEMS = {"grant": "a grant", "renewal": "a renewal", "end": "an end"}


def _anchors(rounds: Sequence[Round]) -> list[tuple[Any, Any, int]]:
    return [(row.at, row.wall_at, row.scale) for row in rounds]


# ---- the list ----


@signed_in
@require_safe
def round_list(request: HttpRequest, name: str) -> HttpResponseBase:
    """Rounds, newest first, by key."""
    facts = pool_or_404(request, name)
    with site_scope():
        page = rounds_page(facts.id, before=_key(request, "before"), after=_key(request, "after"))
    times = clocks(facts, _anchors(page.rows))
    context = {
        "pool": facts,
        "page": page,
        "rows": [_list_row(row, times) for row in page.rows],
        "sums": {key: page.total(key) for key in ("granted", "renewed", "ended")},
        "title": _list_title(page),
        "step_s": facts.round_s * facts.clock.scale,
        "nav_key": "rounds",
        # Only the newest page changes with a round.
        "live": not request.GET,
    }
    return render(request, "rounds/round_list.html", context)


def _key(request: HttpRequest, name: str) -> int | None:
    raw = request.GET.get(name, "")
    if not raw:
        return None
    if not raw.isdecimal() or len(raw) > 18:
        raise Http404
    return int(raw)


def _list_row(row: Round, times: Clocks) -> dict[str, Any]:
    reasons = sorted(row.summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    return {
        "round": row,
        "at": times.instant(row.at),
        "sum": row.summary,
        "blocked": 0,
        "reason": why(reasons[0][0]) if reasons else None,
        "reason_note": _reasons_note(row, reasons),
        "decide_ms": row.decide_us / 1000,
    }


def _reasons_note(row: Round, reasons: list[tuple[str, int]]) -> Note | None:
    if not reasons:
        return None
    return count_note(
        f"Jobs that waited after round {thousands(row.number)}",
        [(why(code).words, count) for code, count in reasons],
        total="wait",
    )


def _list_title(page: RoundsPage) -> str:
    if not page.rows:
        return "No round has been decided here."
    count = len(page.rows)
    if page.newer is not None:
        which = f"Rounds {thousands(page.rows[-1].number)} to {thousands(page.rows[0].number)}"
    else:
        which = "The only round" if count == 1 else f"The last {count} rounds"
    return f"{which} granted {plural(page.total('granted'), 'lease')}."


# ---- one round ----


@signed_in
@require_safe
def round_page(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """One round as the viewer may see it."""
    facts = pool_or_404(request, name)
    with site_scope():
        visibility = read_visibility(facts.id, access(request))
        view = round_view(facts.id, number, visibility)
        seen = view_certificate(view.round, visibility) if view else None
    if view is None:
        raise Http404
    context = {
        **_head(facts, view),
        **_body(view),
        **worth_context(seen),
        "visibility": visibility,
        "certificate": sheet(view, seen),
        "command": words.replay_command(name, number),
        "nav_key": "rounds",
    }
    return render(request, "rounds/round.html", context)


def _head(facts: PoolFacts, view: RoundView) -> dict[str, Any]:
    near = [row for row in (view.previous, view.round, view.next) if row]
    times = clocks(facts, _anchors(near))
    now = pool_now(facts)
    due = (facts.checked_at or now.pool_at) + timedelta(seconds=facts.round_s * now.scale)
    return {
        "pool": facts,
        "view": view,
        "round": view.round,
        "sum": view.round.summary,
        "at": times.instant(view.round.at),
        "due": None if view.next or now.paused else times.instant(max(due, now.pool_at)),
        "granted_note": words.applied_note(view, "grants", "grant", "granted"),
        "renewed_note": words.applied_note(view, "renewals", "renewal", "renewed"),
        "ended_note": words.applied_note(view, "ends", "end", "ended"),
        "waiting": words.waiting_words(view.round),
        "idle": words.idle_words(view.round, view.decision),
        "decide_ms": view.round.decide_us / 1000,
        "snapshot_ms": view.round.snapshot_us / 1000,
    }


def _body(view: RoundView) -> dict[str, Any]:
    found = view.decision
    body: dict[str, Any] = {
        "shares": [_share(row, view.shares) for row in view.shares],
        "share_sums": {
            key: sum(getattr(row, key) for row in view.shares)
            for key in ("quota", "demand", "deserved", "own", "borrowed", "holds")
        },
        "share_title": _share_title(view),
        "types": len({row.gpu_type for row in view.shares}),
        "hashes": [
            (label, hash_bars(sha256), hash_groups(sha256))
            for label, sha256 in (
                ("Snapshot", view.round.snapshot_sha256),
                ("Decision", view.round.decision_sha256),
            )
        ],
        "superseded": [
            {"what": ITEMS.get(row["item"], row["item"]), "why": row["why"]}
            for row in view.round.superseded
        ],
        "found": found,
        "limit": LIMIT,
    }
    if found is not None:
        body |= {
            "order": words.order_words(view.round.policy),
            "grants": _picks(found.grants, view.round.policy),
            "renewals": _picks(found.renewals, view.round.policy),
            "ends": [_end(row) for row in found.ends],
            "groups": [_group(group) for group in found.skips],
            "waiting_jobs": sum(group.jobs for group in found.skips),
            "waiting_gpus": sum(group.gpus for group in found.skips),
            "prices": [(row, words.price_row_note(row)) for row in found.prices],
            "unseen": _unseen(found),
        }
    return body


def _unseen(found: RoundDecision) -> dict[str, int]:
    """Rows of each table that are not shown: out of sight, or beyond the limit."""
    return {
        "grants": found.counts["grants"] - len(found.grants),
        "renewals": found.counts["renewals"] - len(found.renewals),
        "ends": found.counts["ends"] - len(found.ends),
    }


def _share(row: ShareRow, rows: Sequence[ShareRow]) -> dict[str, Any]:
    most = max(max(one.holds, one.quota, one.demand) for one in rows)
    return {
        "row": row,
        "mark": mark_of(row.tenant),
        "most": most,
        "note": words.share_note(row),
        "rho_note": words.rho_note(row) if row.rho_before is not None else None,
        "moves": row.rho_before is not None and f"{row.rho_before:.2f}" != f"{row.rho_after:.2f}",
    }


def _share_title(view: RoundView) -> str:
    """A finding: who holds at least min(demand, quota) now.

    A policy that shares by a program trades one type for another on purpose, so there a row says
    nothing alone.
    """
    seen = [row for row in view.shares if row.tenant]
    if not seen:
        return "Shares"
    if words.trades_types(view.round.policy):
        return "Shares trade one GPU type for another"
    less = len({row.tenant.id for row in seen if row.tenant and row.holds < row.deserved})
    of = len({row.tenant.id for row in seen if row.tenant})
    if not less:
        return "Everybody holds at least what they deserve now"
    if of == 1:
        return "You hold less than you deserve now"
    verb = "holds less than it deserves" if less == 1 else "hold less than they deserve"
    return f"{less} of {of} tenants {verb} now"


def _picks(rows: Sequence[PickRow], policy: str) -> list[dict[str, Any]]:
    """Rows in order; where tenants below 1 all come first, they stand under a head."""
    split = next((i for i, row in enumerate(rows) if (row.tenant_rho or 0) >= 1), len(rows))
    clean = policy == "ltgf" and all((row.tenant_rho or 0) >= 1 for row in rows[split:])
    heads: dict[int, str] = {}
    if clean and 0 < split < len(rows):
        first, rest = rows[:split], rows[split:]
        heads[0] = _head_words("First tenants below 1, which received less than deserved", first)
        heads[split] = _head_words("Then tenants from 1 on", rest)
    return [
        {
            "row": row,
            "mark": mark_of(row.tenant),
            "key": words.key_note(row, policy),
            "where": _where(row.places),
            "head": heads.get(place, ""),
        }
        for place, row in enumerate(rows)
    ]


def _head_words(text: str, rows: Sequence[PickRow]) -> str:
    gpus = sum(row.gpus for row in rows)
    return f"{text}: {plural(len(rows), 'lease')}, {plural(gpus, 'GPU')}"


def _where(places: Sequence[Any]) -> str:
    if len(places) == 1:
        return str(places[0].node)
    shown = ", ".join(f"{place.node} ({place.gpus})" for place in places[:4])
    return shown + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def _end(row: EndRow) -> dict[str, Any]:
    return {
        "row": row,
        "mark": mark_of(row.tenant),
        "where": _where(row.places),
        "why": words.MOVED if row.moved else words.ended_words(row.reason.value),
    }


def _group(group: SkipGroup) -> dict[str, Any]:
    return {
        "group": group,
        "why": why(group.reason.value),
        "rows": [
            {"row": row, "mark": mark_of(row.tenant), "why": why(group.reason.value, row.numbers)}
            for row in group.rows
        ],
    }
