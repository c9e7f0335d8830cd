"""The rows of a round's tables, with the notes behind their numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils.translation import gettext as _

from evenshare_core.policies import registry
from portal.charts.figures import duration, plural, thousands
from portal.common.clocks import Clocks
from portal.common.preemptions import numbers_note
from portal.common.tenant_badges import badge_of
from portal.rounds.text import round as round_text
from scheduling.selectors.jobs.reasons import why
from scheduling.selectors.rounds.rows import EndRow, PickRow, SkipGroup


def pick_rows(rows: Sequence[PickRow], policy: str, *, is_whole: bool) -> list[dict[str, Any]]:
    """Return grants or renewals in order.

    If all tenants with a rho below 1 come first, add two headings; `is_whole`: with their sums,
    because no row is missing.
    """
    split = next((i for i, row in enumerate(rows) if (row.tenant_rho or 0) >= 1), len(rows))
    by_rho = registry.traits(policy).picks_by_rho
    clean = by_rho and all((row.tenant_rho or 0) >= 1 for row in rows[split:])
    heads: dict[int, str] = {}
    if clean and 0 < split < len(rows):
        first, rest = (rows[:split], rows[split:]) if is_whole else ((), ())
        heads[0] = _heading(
            _("First tenants with rho below 1: they received less than their fair share"), first
        )
        heads[split] = _heading(_("Then tenants with rho of 1 or more"), rest)
    return [
        {
            "row": row,
            "badge": badge_of(row.tenant),
            "key": round_text.key_note(row, policy),
            "tag": round_text.note_name(row.note),
            "where": places_text(row.places),
            "lasts": _lasts(row.lasts_s),
            "lost": round_text.lost_text(row.lost),
            "head": heads.get(place, ""),
        }
        for place, row in enumerate(rows)
    ]


def _lasts(seconds: float | None) -> str:
    return "" if seconds is None else _("for {time}").format(time=duration(seconds))


def _heading(text: str, rows: Sequence[PickRow]) -> str:
    if not rows:
        return text
    gpus = sum(row.gpus for row in rows)
    return f"{text}: {plural(len(rows), 'lease')}, {plural(gpus, 'GPU')}"


def places_text(places: Sequence[tuple[str, int]]) -> str:
    """Return "node-07", or at most four nodes with their GPUs."""
    if len(places) == 1:
        return places[0][0]
    shown = ", ".join(f"{node} ({gpus})" for node, gpus in places[:4])
    if len(places) <= 4:
        return shown
    return _("{nodes} and {count} more").format(nodes=shown, count=thousands(len(places) - 4))


def end_row(row: EndRow, times: Clocks) -> dict[str, Any]:
    """Return a lease that ended, and why."""
    early = row.early
    return {
        "row": row,
        "badge": badge_of(row.tenant),
        "where": places_text(row.places),
        "why": why_ended(row),
        "lost": round_text.lost_text(row.lost),
        "numbers": early and numbers_note(early.rule, early.numbers, times),
    }


def why_ended(row: EndRow) -> str:
    """Return why a lease ended, as a sentence."""
    if row.early is None:
        return _(round_text.MOVED) if row.moved else round_text.ended_text(row.reason.value)
    text = _("Preempted with notice: {reason}")
    if row.moved:
        text = _("Moved with notice: {reason}")
    return text.format(reason=row.early.words)


def queue_entries(groups: Iterable[SkipGroup], times: Clocks) -> list[dict[str, Any]]:
    """Return a row for each reason and visible tenant; without tenant if all are hidden."""
    return [
        {
            "group": group,
            "reason": why(group.reason.value),
            "row": row,
            "badge": badge_of(row.tenant) if row else None,
            "why": why(group.reason.value, row.numbers) if row else None,
            "times": times,
        }
        for group in groups
        for row in (group.rows or (None,))
    ]
