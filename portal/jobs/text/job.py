"""Texts of a job: its badge, headline and lease, and the data of the top of its page."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from billing.selectors.prices import PriceRow
from evenshare_core.domain.reasons import Reason
from evenshare_core.policies import registry
from portal.charts.figures import duration, plural, thousands
from portal.charts.glyphs import StateBadge
from portal.charts.notes import LineItem, Note, count_note
from portal.charts.timeline import timeline
from portal.common.clocks import Clocks
from portal.jobs.text.held import HeldSpan, held_by
from portal.jobs.text.job_timeline import job_timeline
from portal.jobs.text.leases import (
    Spent,
    lease_until,
    live_hold,
    live_holds,
    spent_of,
    starting_hold,
    where,
)
from scheduling.models import Job, Lease
from scheduling.selectors.jobs.lists import held_numbers
from scheduling.selectors.jobs.phases import STARTING, phase_of
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import ReasonText, why
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView

State = Job.State
# Badges with English texts, which pages translate.
STATE_BADGES: dict[str, StateBadge] = {
    State.PENDING: StateBadge("waiting", gettext_noop("Queued")),
    STARTING: StateBadge("starting", gettext_noop("Starting")),
    State.RUNNING: StateBadge("running", gettext_noop("Running")),
    State.STOPPING: StateBadge("preempted", gettext_noop("Stopping")),
    State.SUCCEEDED: StateBadge("ok", gettext_noop("Done")),
    State.FAILED: StateBadge("bad", gettext_noop("Failed")),
    State.CANCELLED: StateBadge("ended", gettext_noop("Cancelled")),
}


def job_context(
    story: JobStory,
    clocks: Clocks,
    posted: list[PriceRow],
    early: Mapping[int, PreemptionRow] = MappingProxyType({}),
    helds: Sequence[HeldSpan] = (),
) -> dict[str, Any]:
    """Return the data of the top of templates/jobs/job.html.

    `early`: preemptions before the expiry, by lease (`preemptions_among`). `helds`: when people
    held the job.
    """
    now = clocks.now.pool_at
    spent = spent_of(story, now)
    held = live_hold(story)
    said = headline(story, held, spent, now, held_by(story.job.reason_code, helds))
    phase = phase_of(story.job.state, [hold.lease.state for hold in live_holds(story)])
    return {
        "headline": said,
        "queued_at": clocks.instant(queued_at(story)) if held is None else None,
        "until": clocks.instant(lease_until(held.lease)) if held and said.end else None,
        "may_be_preempted": registry.traits(story.job.pool.policy).preempts_running,
        "nodes_note": nodes_note(held) if held else None,
        "state_badge": state_badge(
            phase, is_quarantined=bool(story.job.quarantine), is_held=story.job.is_held
        ),
        "held_reason": held_reason(story.job),
        "quarantine": quarantine_reason(story.job),
        "spent": spent,
        "time_title": time_title(story, spent),
        "timeline_svg": timeline(job_timeline(story, posted, now, early, helds)),
        "held": held,
        "price_url": price_url(story, held) if held else "",
        "price_round": held.terms[-1].round if held and held.terms else None,
        "left_s": (lease_until(held.lease) - now).total_seconds() if held else 0,
        "lasts_s": held.terms[-1].lasts_s if held and held.terms else story.job.pool.lease_s,
        "protected_s": held.lease.protected_s if held else 0,
        "protected": clocks.instant(_protected(held.lease, now)) if held else None,
        "lease_lines": lease_lines(held) if held else (),
    }


def price_url(story: JobStory, held: LeaseView) -> str:
    """Return the page of the present term's price; empty if nothing is borrowed."""
    if not held.terms or not held.terms[-1].borrowed:
        return ""
    place = (story.job.pool.name, held.lease.gpu_type.name, held.terms[-1].round)
    return reverse("posted-price", args=place)


def state_badge(phase: str, *, is_quarantined: bool, is_held: bool = False) -> StateBadge:
    """Return the badge of a phase; waiting jobs that are not in a queue have their own badges."""
    badge = STATE_BADGES[phase]
    text = _(badge.text)
    if phase == State.PENDING and (is_quarantined or is_held):
        text = _("In quarantine") if is_quarantined else pgettext("job", "Held")
    return badge._replace(text=text)


def held_reason(job: Job) -> ReasonText | None:
    """Return why a job is held, or None if it is not."""
    return why(job.reason_code, held_numbers(job)) if job.is_held else None


def quarantine_reason(job: Job) -> ReasonText | None:
    """Return why a job is in quarantine, or None if it is not.

    The policy's error is only for operators, because it may name other tenants.
    """
    if job.state != State.PENDING or not job.quarantine:
        return None
    return why(Reason.QUARANTINED.value)


class Headline(NamedTuple):
    """The headline in parts around two values: `place`, a link to the job's nodes, and a time.

    `end` follows the time; it is empty without one.
    """

    start: str
    place: str = ""
    middle: str = ""
    end: str = ""

    @property
    def mark(self) -> str:
        return self.middle[:1]

    @property
    def rest(self) -> str:
        """Return what follows the place, without the punctuation mark that is printed with it."""
        return self.middle[1:]


def _headline(text: str, place: str = "") -> Headline:
    """Split a text at "{place}" and at "{time}", which the page draws."""
    if not place:
        start, _sep, end = text.partition("{time}")
        return Headline(start, end=end)
    start, _sep, rest = text.partition("{place}")
    middle, _sep, end = rest.partition("{time}")
    return Headline(start, place, middle, end)


def headline(
    story: JobStory, held: LeaseView | None, spent: Spent, now: datetime, holder: str
) -> Headline:
    """Return the job's present state, and since or until when; `holder` names who holds it."""
    job = story.job
    if job.ended_at is not None:
        return Headline(_ended_text(job, spent))
    if job.cancel_asked_at is not None:
        return Headline(
            ngettext(
                "Cancelling: it may save its state, then its GPU goes to other jobs.",
                "Cancelling: it may save its state, then its GPUs go to other jobs.",
                job.gpus,
            )
        )
    if job.state == State.STOPPING:
        if job.quarantine:
            return Headline(_("Checkpointing and stopping, then in quarantine."))
        return Headline(_("Checkpointing and stopping, then queued again."))
    if held is not None:
        return _headline(_held_text(job, held, now), where(held))
    return _queued_text(story, holder)


def _queued_text(story: JobStory, holder: str) -> Headline:
    """Return the text around the time of queueing, which the page inserts and keeps up to date."""
    if story.job.quarantine:
        return Headline(_("In quarantine: rounds skip it."))
    if held := held_reason(story.job):
        return Headline(holder or _("Held, not queued: {reason}.").format(reason=held.text))
    if story.waits_for is None:
        return _headline(_("Queued again {time}.") if story.holds else _("Queued {time}."))
    text = _("Queued again {time}: {reason}.") if story.holds else _("Queued {time}: {reason}.")
    said = _headline(text)
    return said._replace(end=said.end.format(reason=story.waits_for.reason.text))


def queued_at(story: JobStory) -> datetime | None:
    """Return since when the job is queued, or None if it is not."""
    job = story.job
    if job.state != State.PENDING or job.quarantine or job.cancel_asked_at or job.is_held:
        return None
    last = story.holds[-1].lease.ended_at if story.holds else None
    return max(last, job.arrived_at) if last else job.arrived_at


def _ended_text(job: Job, spent: Spent) -> str:
    ran = duration(spent.ran_s)
    if job.is_given_up:
        text = _(
            "Failed before it ran: its process was lost {count} times in a row soon after each"
            " start."
        )
        if spent.ran_s:
            text = _(
                "Failed after {time} of running: its process was lost {count} times in a row soon"
                " after each start."
            )
        return text.format(count=thousands(job.losses), time=ran)
    ended = _(STATE_BADGES[job.state].text)
    if job.state == State.FAILED and job.exit_code is not None:
        ended = _("Failed with exit code {code}").format(code=job.exit_code)
    if not spent.ran_s:
        return _("{ended} before it ran.").format(ended=ended)
    return _("{ended} after {time} of running.").format(ended=ended, time=ran)


def _held_text(job: Job, held: LeaseView, now: datetime) -> str:
    if held.lease.state == Lease.State.WAITING:
        return _("Granted {place}, and waiting until they are released.")
    if held.lease.state == Lease.State.LAUNCHING:
        return _("Starting on {place}.")
    if lease_until(held.lease) <= now:
        return _("Running on {place}, renewing lease.")
    if registry.traits(job.pool.policy).preempts_running:
        return _("Running on {place} until {time} unless it is preempted.")
    return _("Running on {place} until {time} at least.")


def nodes_note(hold: LeaseView) -> Note:
    """Return the lease's nodes, and the number of GPUs on each."""
    return count_note(_("GPUs by node"), hold.places, total=_("total"))


def time_title(story: JobStory, spent: Spent) -> str:
    """Return the job's waiting and running time as a heading."""
    waited = duration(spent.waited_s)
    if spent.ran_s:
        text = (
            _("Queued {waited}, ran {ran}")
            if story.job.ended_at
            else _("Queued {waited}, running {ran}")
        )
        return text.format(waited=waited, ran=duration(spent.ran_s))
    if story.job.ended_at:
        return _("Queued {waited}, never ran").format(waited=waited)
    starting = starting_hold(story)
    if starting is None:
        return _("Not run yet")
    waited_s = (starting.lease.granted_at - story.job.submitted_at).total_seconds()
    return _("Queued {waited}, not run yet").format(waited=duration(waited_s))


def _protected(lease: Lease, now: datetime) -> datetime | None:
    """Return until when no policy may end the lease, or None if it is not protected."""
    until = lease.protected_until
    return until if until is not None and until > now else None


def lease_lines(held: LeaseView) -> tuple[LineItem, ...]:
    """Return the facts that the lease's present term fixed."""
    lease = held.lease
    lasts = [LineItem(_("lease length"), duration(term.lasts_s)) for term in held.terms[-1:]]
    return (
        *lasts,
        LineItem(_("within quota"), plural(lease.own, "GPU")),
        LineItem(_("borrowed"), plural(lease.borrowed, "GPU")),
    )
