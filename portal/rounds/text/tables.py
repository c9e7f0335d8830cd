"""The tables of a round and of the list of rounds, with the notes behind their numbers."""

from collections.abc import Sequence
from typing import Any

from evenshare_core.policies import registry
from evenshare_core.units import MILLISECOND_US
from portal.charts.bars import hash_bars, hash_groups
from portal.charts.figures import duration, plural, thousands
from portal.charts.notes import Note, count_note
from portal.common.clocks import Clocks
from portal.common.preemptions import numbers_note
from portal.common.tenant_badges import badge_of
from portal.rounds.text import round as round_text
from scheduling.models import Round
from scheduling.selectors.jobs.reasons import why
from scheduling.selectors.rounds.lists import RoundsPage
from scheduling.selectors.rounds.one_round import LIMIT, RoundDecision, RoundView
from scheduling.selectors.rounds.rows import EndRow, PickRow, SkipGroup
from scheduling.selectors.rounds.shares import RoundShare

ITEMS = {"grant": "a grant", "renewal": "a renewal", "end": "an end"}


def list_row(row: Round, times: Clocks) -> dict[str, Any]:
    reasons = sorted(row.summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    return {
        "round": row,
        "at": times.instant(row.at),
        "sum": row.summary,
        "blocked": 0,
        "reason": next((why(code) for code, _ in reasons), None),
        "reason_note": _reasons_note(row, reasons),
        "decide_ms": row.decide_us / MILLISECOND_US,
    }


def _reasons_note(row: Round, reasons: list[tuple[str, int]]) -> Note | None:
    if not reasons:
        return None
    return count_note(
        f"Jobs queued after round {thousands(row.number)}",
        [(why(code).text, count) for code, count in reasons],
        total="queued",
    )


def list_title(page: RoundsPage) -> str:
    if not page.rows:
        return "No rounds yet."
    count = len(page.rows)
    if page.newer is not None:
        which = f"Rounds {thousands(page.rows[-1].number)} to {thousands(page.rows[0].number)}"
    else:
        which = "The only round" if count == 1 else f"The last {count} rounds"
    return f"{which} granted {plural(page.total('granted'), 'lease')}."


def round_body(view: RoundView) -> dict[str, Any]:
    """Return the decision's data of templates/rounds/round.html."""
    decision = view.decision
    body: dict[str, Any] = {
        "shares": [_share(row, view.shares) for row in view.shares],
        "share_sums": {
            key: sum(getattr(row, key) for row in view.shares)
            for key in ("quota", "demand", "deserved", "own", "borrowed", "holds")
        },
        "share_title": _share_title(view),
        "swaps": any(row.swapped for row in view.shares),
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
        "decision": decision,
        "limit": LIMIT,
    }
    if decision is not None:
        body |= {
            "order": round_text.order_text(view.round.policy),
            "grants": _picks(decision.grants, view.round.policy),
            "renewals": _picks(decision.renewals, view.round.policy),
            "ends": [_end(row) for row in decision.ends],
            "ends_foot": _ends_foot(decision),
            "groups": [_group(group) for group in decision.skips],
            "waiting_jobs": sum(group.jobs for group in decision.skips),
            "waiting_gpus": sum(group.gpus for group in decision.skips),
            "prices": [(row, round_text.price_row_note(row)) for row in decision.prices],
            "unseen": _unseen(decision),
        }
    return body


def _unseen(decision: RoundDecision) -> dict[str, int]:
    """Return how many rows each table omits because they are hidden or exceed its length."""
    return {
        "grants": decision.counts["grants"] - len(decision.grants),
        "renewals": decision.counts["renewals"] - len(decision.renewals),
        "ends": decision.counts["ends"] - len(decision.ends),
    }


def _share(row: RoundShare, rows: Sequence[RoundShare]) -> dict[str, Any]:
    most = max(max(one.holds, one.quota + one.swapped, one.demand) for one in rows)
    return {
        "row": row,
        "quota": row.quota + row.swapped,
        "badge": badge_of(row.tenant),
        "most": most,
        "note": round_text.share_note(row),
        "rho_note": round_text.rho_note(row) if row.rho_before is not None else None,
        "moves": row.rho_before is not None and f"{row.rho_before:.2f}" != f"{row.rho_after:.2f}",
    }


def _share_title(view: RoundView) -> str:
    """Return how many tenants hold at least min(demand, quota).

    Policies that trade GPU types on purpose get another title, because a single row means nothing
    there.
    """
    seen = [row for row in view.shares if row.tenant]
    if not seen:
        return "Shares"
    if registry.traits(view.round.policy).trades_types:
        return "Shares trade one GPU type for another"
    less = len({row.tenant.id for row in seen if row.tenant and row.holds < row.deserved})
    of = len({row.tenant.id for row in seen if row.tenant})
    if not less:
        return "All tenants hold at least their fair share now"
    if of == 1:
        return "You hold less than your fair share now"
    verb = "holds less than its fair share" if less == 1 else "hold less than their fair share"
    return f"{less} of {of} tenants {verb} now"


def _picks(rows: Sequence[PickRow], policy: str) -> list[dict[str, Any]]:
    """Return the rows in order. If all tenants with a rho below 1 come first, add two headings."""
    split = next((i for i, row in enumerate(rows) if (row.tenant_rho or 0) >= 1), len(rows))
    by_rho = registry.traits(policy).picks_by_rho
    clean = by_rho and all((row.tenant_rho or 0) >= 1 for row in rows[split:])
    heads: dict[int, str] = {}
    if clean and 0 < split < len(rows):
        first, rest = rows[:split], rows[split:]
        heads[0] = _heading(
            "First tenants with rho below 1: they received less than their fair share", first
        )
        heads[split] = _heading("Then tenants with rho of 1 or more", rest)
    return [
        {
            "row": row,
            "badge": badge_of(row.tenant),
            "key": round_text.key_note(row, policy),
            "where": _where(row.places),
            "lasts": f"for {duration(row.lasts_s)}" if row.lasts_s is not None else "",
            "head": heads.get(place, ""),
        }
        for place, row in enumerate(rows)
    ]


def _heading(text: str, rows: Sequence[PickRow]) -> str:
    gpus = sum(row.gpus for row in rows)
    return f"{text}: {plural(len(rows), 'lease')}, {plural(gpus, 'GPU')}"


def _where(places: Sequence[tuple[str, int]]) -> str:
    if len(places) == 1:
        return places[0][0]
    shown = ", ".join(f"{node} ({gpus})" for node, gpus in places[:4])
    return shown + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def _end(row: EndRow) -> dict[str, Any]:
    return {
        "row": row,
        "badge": badge_of(row.tenant),
        "where": _where(row.places),
        "why": _why_ended(row),
        "numbers": numbers_note(row.early.rule, row.early.numbers) if row.early else None,
    }


def _ends_foot(decision: RoundDecision) -> str:
    """Return "Ended, 1 of them moved, 2 with notice"."""
    moved = f", {thousands(decision.moved)} of them moved" if decision.moved else ""
    early = f", {thousands(decision.early)} with notice" if decision.early else ""
    return f"Ended{moved}{early}"


def _why_ended(row: EndRow) -> str:
    if row.early is not None:
        verb = "Moved" if row.moved else "Preempted"
        return f"{verb} with notice: {row.early.words}"
    return round_text.MOVED if row.moved else round_text.ended_text(row.reason.value)


def _group(group: SkipGroup) -> dict[str, Any]:
    return {
        "group": group,
        "why": why(group.reason.value),
        "rows": [
            {"row": row, "badge": badge_of(row.tenant), "why": why(group.reason.value, row.numbers)}
            for row in group.rows
        ],
    }
