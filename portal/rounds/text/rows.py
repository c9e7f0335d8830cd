"""The rows of a round's tables, with the notes behind their numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

from evenshare_core.policies import registry
from portal.charts.figures import duration, plural
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
            "First tenants with rho below 1: they received less than their fair share", first
        )
        heads[split] = _heading("Then tenants with rho of 1 or more", rest)
    return [
        {
            "row": row,
            "badge": badge_of(row.tenant),
            "key": round_text.key_note(row, policy),
            "where": places_text(row.places),
            "lasts": f"for {duration(row.lasts_s)}" if row.lasts_s is not None else "",
            "head": heads.get(place, ""),
        }
        for place, row in enumerate(rows)
    ]


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
    return shown + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def end_row(row: EndRow) -> dict[str, Any]:
    """Return a lease that ended, and why."""
    return {
        "row": row,
        "badge": badge_of(row.tenant),
        "where": places_text(row.places),
        "why": why_ended(row),
        "numbers": numbers_note(row.early.rule, row.early.numbers) if row.early else None,
    }


def why_ended(row: EndRow) -> str:
    """Return why a lease ended, as a sentence."""
    if row.early is not None:
        verb = "Moved" if row.moved else "Preempted"
        return f"{verb} with notice: {row.early.words}"
    return round_text.MOVED if row.moved else round_text.ended_text(row.reason.value)


def queue_entries(groups: Iterable[SkipGroup]) -> list[dict[str, Any]]:
    """Return a row for each reason and visible tenant; without tenant if all are hidden."""
    return [
        {
            "group": group,
            "reason": why(group.reason.value),
            "row": row,
            "badge": badge_of(row.tenant) if row else None,
            "why": why(group.reason.value, row.numbers) if row else None,
        }
        for group in groups
        for row in (group.rows or (None,))
    ]
