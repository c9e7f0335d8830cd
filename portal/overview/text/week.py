"""Data of templates/overview/_week.html: a tenant's jobs that ended in the last days."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

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
    if not sums.jobs:
        return _("No job ended in the last {days} days").format(days=DAYS)
    ended = ngettext(
        "{count} job ended in the last {days} days",
        "{count} jobs ended in the last {days} days",
        sums.jobs,
    ).format(count=thousands(sums.jobs), days=DAYS)
    if sums.due:
        return _("{jobs_ended}, {missed} of {deadlines} missed").format(
            jobs_ended=ended, missed=thousands(sums.missed), deadlines=plural(sums.due, "deadline")
        )
    if not sums.compared:
        return ended
    if not sums.losses:
        return _("{jobs_ended}, none of them with a sharing loss").format(jobs_ended=ended)
    return _("{jobs_ended}, {count} of them with a sharing loss").format(
        jobs_ended=ended, count=thousands(sums.losses)
    )


def _cost_note(cost: PreemptionCost) -> Note:
    hours = gpu_hours(cost.restart_gpu_s, 2)
    lost = _("not known") if cost.restart_gpu_s is None else f"{hours} GPU-h"
    return Note(
        _("Preemptions of the last {days} days").format(days=DAYS),
        (
            LineItem(_("before the expiry, with notice"), thousands(cost.early)),
            LineItem(_("at the end of a term"), thousands(cost.preemptions - cost.early)),
            LineItem(_("moves to other GPUs"), thousands(cost.moves)),
            LineItem(_("restarts"), thousands(cost.restarts)),
            LineItem(_("GPU-time of restarts"), lost),
        ),
    )
