"""The body of a round's page: its verdict, its shares, and the rows of the viewer's tenants."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from evenshare_core.policies import registry
from portal.charts.bars import hash_bars, hash_groups
from portal.charts.figures import thousands
from portal.charts.notes import CertificatePanel, Note
from portal.common.clocks import Clocks
from portal.common.tenant_badges import badge_of
from portal.rounds.text import round as round_text
from portal.rounds.text.certificate import UNVERIFIED
from portal.rounds.text.row_tables import RowsShown
from portal.rounds.text.rows import places_text, why_ended
from scheduling.selectors.jobs.reasons import why
from scheduling.selectors.rounds.one_round import RoundDecision, RoundView
from scheduling.selectors.rounds.rows import EndRow, PickRow, SkipRow
from scheduling.selectors.rounds.shares import RoundShare
from scheduling.selectors.visibility import VisibleTenant

OWN = 3  # rows of the viewer's tenants, and as many reasons why their jobs are queued
SHARES = 12  # rows of shares on a round's page, of all GPU types
ITEMS = {
    "grant": gettext_noop("a grant"),
    "renewal": gettext_noop("a renewal"),
    "end": gettext_noop("an end"),
}


def round_body(view: RoundView, pool: str, times: Clocks) -> dict[str, Any]:
    """Return the data of templates/rounds/round.html that are no table of rows."""
    decision = view.decision
    return {
        "shares": share_context(view, _first_shares(view.shares), pool),
        "yours": yours_context(view, pool, times) if decision else None,
        "hashes": [
            (label, hash_bars(sha256), hash_groups(sha256))
            for label, sha256 in (
                (_("Snapshot, SHA-256"), view.round.snapshot_sha256),
                (_("Decision, SHA-256"), view.round.decision_sha256),
            )
        ],
        "superseded": [
            {"what": _(ITEMS.get(row["item"], row["item"])), "why": _(row["why"])}
            for row in view.round.superseded
        ],
        "damages": [(_part(one.part), one) for one in view.damages],
        "decision": decision,
        "prices": [
            (row, round_text.price_row_note(row)) for row in (decision.prices if decision else ())
        ],
    }


def _part(code: str) -> str:
    """Return the name of a stored part of a round."""
    return {
        "row": pgettext("a part of a round", "row"),
        "snapshot": pgettext("a part of a round", "snapshot"),
        "decision": pgettext("a part of a round", "decision"),
        "state": pgettext("a part of a round", "state"),
    }.get(code, code)


# ---- the verdict ----


def verdict_context(panel: CertificatePanel, chain_state: str) -> dict[str, Any]:
    """Return the certificate in one line, and the sentence on what is wrong, if any."""
    alarm = panel.broken_text or panel.alarm or (_(UNVERIFIED) if chain_state == "bad" else "")
    return {
        "verdict": _verdict(panel),
        "verdict_kind": _verdict_kind(panel),
        "alarm": alarm,
    }


def _verdict(panel: CertificatePanel) -> str:
    names = [promise.name for promise in panel.promises if promise.verdict == "violated"]
    shown = ", ".join(names[:2])
    if len(names) > 2:
        text = _("Broken: {promises} and {count} more")
        return text.format(promises=shown, count=thousands(len(names) - 2))
    if names:
        return _("Broken: {promises}").format(promises=shown)
    kept = panel.count("holds", "note")
    count = kept + panel.count("unmeasured")
    if not count:
        return _("No promise was checked")
    return ngettext(
        "{kept} of {count} promise holds", "{kept} of {count} promises hold", count
    ).format(kept=thousands(kept), count=thousands(count))


def _verdict_kind(panel: CertificatePanel) -> str:
    if panel.broken:
        return "bad"
    is_whole = panel.count("holds", "note") and not panel.count("unmeasured") and not panel.alarm
    return "ok" if is_whole else "warn"


# ---- shares ----


def share_context(
    view: RoundView, rows: Sequence[RoundShare], pool: str, *, start: int = 0, is_page: bool = False
) -> dict[str, Any]:
    """Return some rows of the shares, with the sums of all."""
    most = max(
        (max(one.holds, one.quota + one.swapped, one.demand) for one in view.shares), default=0
    )
    url = reverse("round-rows", args=[pool, view.round.number, "shares"])
    return {
        "rows": [_share(row, most) for row in rows],
        "sums": {
            key: sum(getattr(row, key) for row in view.shares)
            for key in ("quota", "demand", "deserved", "own", "borrowed", "holds")
        },
        "title": _share_title(view),
        "swaps": any(row.swapped for row in view.shares),
        "types": len({row.gpu_type for row in view.shares}),
        "shown": RowsShown(url, len(rows), len(view.shares), start=start, is_page=is_page),
    }


def _first_shares(rows: Sequence[RoundShare]) -> list[RoundShare]:
    """Return the first rows of each type, after those of the viewer's tenants."""
    types = list(dict.fromkeys(row.gpu_type for row in sorted(rows, key=lambda row: row.gpu_type)))
    count = max(SHARES // max(len(types), 1), 3)
    shown: list[RoundShare] = []
    for gpu_type in types:
        of_type = [row for row in rows if row.gpu_type == gpu_type]
        shown += sorted(of_type, key=lambda row: not (row.tenant and row.tenant.you))[:count]
    return shown


def _share(row: RoundShare, most: int) -> dict[str, Any]:
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
        return _("Shares")
    if registry.traits(view.round.policy).trades_types:
        return _("Shares trade one GPU type for another")
    less = len({row.tenant.id for row in seen if row.tenant and row.holds < row.deserved})
    of = len({row.tenant.id for row in seen if row.tenant})
    if not less:
        return _("All tenants with jobs hold at least their fair share now")
    if of == 1:
        return _("You hold less than your fair share now")
    return ngettext(
        "{count} of {tenants} tenants holds less than its fair share now",
        "{count} of {tenants} tenants hold less than their fair share now",
        less,
    ).format(count=thousands(less), tenants=thousands(of))


# ---- the viewer's own rows ----


def yours_context(view: RoundView, pool: str, times: Clocks) -> dict[str, Any] | None:
    """Return the first decisions on jobs of the viewer's tenants; None if there are none."""
    decision = view.decision
    if decision is None:
        return None
    queued = [
        _queued(group.reason.value, row, times)
        for group in decision.skips
        for row in group.rows
        if row.tenant.you
    ]
    rows = [
        *_own_picks(decision.grants, _("Granted")),
        *_own_ends(decision.ends),
        *_own_picks(decision.renewals, _("Renewed")),
    ][:OWN]
    if not rows and not queued:
        return None
    own = {name: seen.own for name, seen in decision.seen.items()}
    counts = (
        (_("{count} granted"), own["grants"]),
        (_("{count} renewed"), own["renewals"]),
        (_("{count} ended"), own["ends"]),
        (_("{count} queued"), sum(row["jobs"] for row in queued)),
    )
    shown = [text.format(count=thousands(count)) for text, count in counts if count]
    return {
        "title": _("Your jobs: {counts}").format(counts=", ".join(shown)),
        "rows": rows,
        "queued": queued[:OWN],
        "links": _own_links(view, decision, pool) if _is_cut(decision, rows) else [],
    }


def _is_cut(decision: RoundDecision, rows: Sequence[Any]) -> bool:
    return len(rows) < sum(decision.seen[name].own for name in ("grants", "ends", "renewals"))


def _own_links(view: RoundView, decision: RoundDecision, pool: str) -> list[tuple[str, str]]:
    texts = (
        ("grants", _("Your grants")),
        ("ends", _("Your ended leases")),
        ("renewals", _("Your renewals")),
    )
    return [
        (text, reverse("round-rows", args=[pool, view.round.number, name]) + "?own=1")
        for name, text in texts
        if decision.seen[name].own
    ]


def _own_picks(rows: Iterable[PickRow], text: str) -> list[dict[str, Any]]:
    return [
        {
            **_own_row(row.tenant, row, text),
            "price": row.price if row.borrowed else None,
        }
        for row in rows
        if row.tenant.you
    ]


def _own_ends(rows: Iterable[EndRow]) -> list[dict[str, Any]]:
    return [
        {**_own_row(row.tenant, row, _("Ended")), "why": why_ended(row)}
        for row in rows
        if row.tenant.you
    ]


def _own_row(tenant: VisibleTenant, row: PickRow | EndRow, text: str) -> dict[str, Any]:
    return {
        "row": row,
        "text": text,
        "badge": badge_of(tenant),
        "where": places_text(row.places),
        "lost": round_text.lost_text(row.lost),
    }


def _queued(code: str, row: SkipRow, times: Clocks) -> dict[str, Any]:
    said = why(code, row.numbers)
    return {
        "jobs": row.jobs,
        "gpus": row.gpus,
        "why": said,
        "note": Note(capfirst(said.text), text=said.sentence, times=times),
    }
