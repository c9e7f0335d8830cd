"""Data of templates/overview/_week.html: a tenant's jobs that ended in the last days."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from portal.charts.figures import gpu_hours, plural, thousands
from portal.charts.notes import LineItem, Note
from scheduling.selectors.jobs.preemption_costs import PreemptionCost
from scheduling.selectors.tenants.week import DAYS, ServedJobs, total


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A day in the table, or the sum of all days."""

    label: str
    sums: ServedJobs


def week_context(days: Mapping[date, ServedJobs], cost: PreemptionCost) -> dict[str, Any]:
    """Return the rows and texts; `week_title` is empty if nothing happened."""
    sums = total(days.values())
    has_cost = bool(cost.preemptions or cost.moves)
    return {
        "week_title": _title(sums) if days or has_cost else "",
        "week_days": [ServedRow(f"{day:%Y-%m-%d}", served) for day, served in days.items()],
        "week_sums": sums,
        "week_cost": cost,
        "week_cost_note": _cost_note(cost) if has_cost else None,
    }


def _title(sums: ServedJobs) -> str:
    """Return "45 jobs ended in the last 7 days, 2 of them with a sharing loss"."""
    jobs = plural(sums.jobs, "job") if sums.jobs else "No job"
    ended = f"{jobs} ended in the last {DAYS} days"
    if sums.due:
        return f"{ended}, {sums.missed} of {plural(sums.due, 'deadline')} missed"
    if sums.compared:
        lost = f"{thousands(sums.losses)} of them" if sums.losses else "none of them"
        return f"{ended}, {lost} with a sharing loss"
    return ended


def _cost_note(cost: PreemptionCost) -> Note:
    hours = gpu_hours(cost.restart_gpu_s, 2)
    lost = "not known" if cost.restart_gpu_s is None else f"{hours} GPU-h"
    return Note(
        f"Preemptions of the last {DAYS} days",
        (
            LineItem("before the expiry, with notice", thousands(cost.early)),
            LineItem("at the end of a term", thousands(cost.preemptions - cost.early)),
            LineItem("moves to other GPUs", thousands(cost.moves)),
            LineItem("restarts", thousands(cost.restarts)),
            LineItem("GPU-time of restarts", lost),
        ),
    )
