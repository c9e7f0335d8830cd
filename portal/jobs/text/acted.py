"""Texts of an action on selected jobs: what a cancellation would do, and what was done."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.figures import plural, thousands
from portal.charts.glyphs import StateBadge
from portal.jobs.text.job import state_badge
from scheduling.models import Job
from scheduling.services.job_actions import ActionOutcome, JobActionRow

DONE: Mapping[str, str] = {
    "cancel": gettext_noop("{jobs} cancelled."),
    "tag": gettext_noop("{jobs} tagged."),
    "untag": gettext_noop("Tags removed from {jobs}."),
    "hold": gettext_noop("{jobs} held."),
    "release": gettext_noop("{jobs} released."),
    "priority": gettext_noop("Priority of {jobs} set."),
}


@dataclass(frozen=True, slots=True)
class AskedCancel:
    """The question before many jobs are cancelled; `news` is empty if it is asked first."""

    title: str
    texts: tuple[str, ...]
    news: str
    button: str
    rows: tuple[tuple[Job, StateBadge], ...]
    running: tuple[UUID, ...]


def asked_cancel(jobs: Sequence[Job], started: Collection[Job]) -> AskedCancel:
    """Return the question whether to cancel `jobs`; `started` left the queue since it was asked."""
    running = [job for job in jobs if job.state != Job.State.PENDING]
    waiting, count = len(jobs) - len(running), plural(len(jobs), "job")
    leave = ngettext(
        "{count} queued job leaves the queue at once.",
        "{count} queued jobs leave the queue at once.",
        waiting,
    )
    stop = ngettext(
        "{count} job has GPUs: it may save its state, and is charged until then.",
        "{count} jobs have GPUs: they may save their state, and are charged until then.",
        len(running),
    )
    left = ngettext(
        "{count} job has left the queue since you were asked.",
        "{count} jobs have left the queue since you were asked.",
        len(started),
    )
    return AskedCancel(
        title=_("Cancel {jobs}?").format(jobs=count),
        texts=tuple(
            text.format(count=thousands(number))
            for text, number in ((leave, waiting), (stop, len(running)))
            if number
        ),
        news=left.format(count=thousands(len(started))) if started else "",
        button=_("Cancel {jobs}").format(jobs=count),
        rows=tuple(
            (
                job,
                state_badge(job.state, is_quarantined=bool(job.quarantine), is_held=job.is_held),
            )
            for job in jobs
        ),
        running=tuple(job.uid for job in running),
    )


def acted_title(action: str, rows: Sequence[JobActionRow]) -> str:
    """Return the heading of the results: "11 jobs cancelled. 1 job refused."."""
    texts = {
        ActionOutcome.DONE: DONE[action],
        ActionOutcome.UNCHANGED: gettext_noop("{jobs} unchanged."),
        ActionOutcome.REFUSED: gettext_noop("{jobs} refused."),
    }
    counts = {one: sum(row.outcome == one for row in rows) for one in texts}
    return " ".join(
        _(texts[one]).format(jobs=plural(count, "job")) for one, count in counts.items() if count
    )
