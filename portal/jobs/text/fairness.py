"""A job's rho and the cost of its preemptions, as sections of its page."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evenshare_core.fairness.rho import standing
from portal.charts.figures import gpu_hours, ratio, thousands
from portal.charts.notes import LineItem
from portal.common.clocks import Clocks
from portal.jobs.text.losses import WorkLoss
from scheduling.models import Job
from scheduling.selectors.jobs.fairness import JobRho
from scheduling.selectors.jobs.preemption_costs import TAKEN, PreemptionCost
from scheduling.selectors.jobs.tenant_jobs import JobStory

# The title of a job's rho, by its position relative to the fair share.
_SO_FAR = {
    "below": gettext_noop("rho so far {rho}: below its fair share"),
    "at": gettext_noop("rho so far {rho}: at its fair share"),
    "above": gettext_noop("rho so far {rho}: above its fair share"),
}
_FINAL = {
    "below": gettext_noop("rho {rho}: below its fair share"),
    "at": gettext_noop("rho {rho}: at its fair share"),
    "above": gettext_noop("rho {rho}: above its fair share"),
}


def fairness_context(
    story: JobStory,
    rho: JobRho,
    cost: PreemptionCost,
    losses: Mapping[int, WorkLoss],
    clocks: Clocks,
) -> dict[str, Any]:
    """Return the data of templates/jobs/_fairness.html; `losses` by lease, as far as known."""
    job = story.job
    taken = {hold.lease.pk for hold in story.holds if hold.lease.end_reason in TAKEN}
    lost = [loss for lease, loss in losses.items() if lease in taken]
    return {
        "rho_title": _rho_title(job, rho),
        "rho_lines": _rho_lines(rho),
        "rho_value": ratio(rho.rho),
        "rho_at": clocks.instant(rho.as_of),
        "rho_is_final": not job.is_active,
        "cost": cost if cost.preemptions or cost.moves else None,
        "cost_title": _cost_title(cost),
        "cost_lines": _cost_lines(job, cost, lost),
        "restart_text": _restart_text(job, cost),
    }


def _rho_title(job: Job, rho: JobRho) -> str:
    if rho.rho is None:
        is_early = rho.as_of and job.is_active
        return _("No fair share so far") if is_early else _("rho is not known")
    titles = _SO_FAR if job.is_active else _FINAL
    return _(titles[standing(rho.rho)]).format(rho=ratio(rho.rho))


def _rho_lines(rho: JobRho) -> tuple[LineItem, ...]:
    if rho.as_of is None:
        return ()
    return (
        LineItem(_("received"), f"{gpu_hours(rho.received_gpu_s, 2)} GPU-h"),
        LineItem(_("its part of the fair share"), f"{gpu_hours(rho.deserved_gpu_s, 2)} GPU-h"),
    )


def _cost_title(cost: PreemptionCost) -> str:
    """Return "Preempted 3 times, moved once"."""
    parts = []
    if cost.preemptions:
        text = ngettext("preempted once", "preempted {count} times", cost.preemptions)
        parts.append(text.format(count=thousands(cost.preemptions)))
    if cost.moves:
        text = ngettext("moved once", "moved {count} times", cost.moves)
        parts.append(text.format(count=thousands(cost.moves)))
    title = ", ".join(parts)
    return title[:1].upper() + title[1:]


def _cost_lines(job: Job, cost: PreemptionCost, losses: Iterable[WorkLoss]) -> tuple[LineItem, ...]:
    lost = "" if cost.restart_gpu_s is None else f"{gpu_hours(cost.restart_gpu_s, 2)} GPU-h"
    return (
        LineItem(_("with notice, before the expiry"), thousands(cost.early)),
        LineItem(_("restarts"), thousands(cost.restarts)),
        LineItem(_("lost in restarts"), lost or _("not known")),
        LineItem(*_work_lost(job, cost, losses)),
    )


def _work_lost(job: Job, cost: PreemptionCost, losses: Iterable[WorkLoss]) -> tuple[str, str]:
    """Return the label and the value of lost work, from the database or else from outputs."""
    label = _("work after the last checkpoint")
    if cost.work_lost_gpu_s is not None:
        return label, f"{gpu_hours(cost.work_lost_gpu_s, 2)} GPU-h"
    known = [row.lost_s for row in losses if row.lost_s is not None]
    if not known:
        return label, _("not known")
    if len(known) < cost.preemptions:
        label = ngettext(
            "work after the last checkpoint, last preemption",
            "work after the last checkpoint, last {count} preemptions",
            len(known),
        ).format(count=len(known))
    return label, f"{gpu_hours(sum(known) * job.gpus, 2)} GPU-h"


def _restart_text(job: Job, cost: PreemptionCost) -> str:
    """Return how the GPU-time of restarts is computed, or why it is not known."""
    if cost.work_lost_gpu_s is not None:
        return _("A simulated job loses no work, and resumes at once.")
    if cost.restart_gpu_s is not None:
        return _("Lost in restarts: the measured time to suspend and resume, on all its GPUs.")
    if job.profile_id is None:
        return _("The job has no job type, so its time to resume is not measured.")
    return _("No job of its type has reported a resumption yet.")
