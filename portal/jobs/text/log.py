"""A job's events as text, newest first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from heapq import merge
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.policies.promised_start import late_credit_micro
from evenshare_core.units import SECOND_US
from portal.charts.figures import credits_text, duration, gpus_of_type, thousands
from portal.common.clocks import Clocks
from portal.common.preemptions import numbers_note
from portal.jobs.text.leases import moves_of
from portal.jobs.text.log_events import WRITERS, Kind, LoggedEvent, LogLine, length_text
from portal.jobs.text.losses import NO_LOSS, WorkLoss
from scheduling.models import LeaseEvent
from scheduling.selectors.jobs.changes import HELD, PRIORITY, JobChange
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import rule_text
from scheduling.selectors.jobs.tenant_jobs import JobStory


def job_log(
    story: JobStory,
    clocks: Clocks,
    losses: Mapping[int, WorkLoss] = MappingProxyType({}),
    early: Mapping[int, PreemptionRow] = MappingProxyType({}),
    made_way: Sequence[PreemptionRow] = (),
) -> list[LogLine]:
    """Return the lines, newest first; equal renewals are one line.

    `losses`: the costs of ends of leases, by lease (`portal.jobs.text.losses.work_losses`).
    `early`: preemptions before the expiry, by lease (`preemptions_among`). `made_way`: such
    preemptions for this job, oldest first (`preemptions_for`).
    """
    holds = {hold.lease.pk: hold for hold in story.holds}
    moves = moves_of(story)
    later = {hold.lease.pk: then for hold, then in pairwise(story.holds)}
    arrived = {hold.lease.pk for hold in moves.values()}
    lines: list[LogLine] = []
    since = story.events[0].number if story.cut and story.events else 0
    others = [view for view in made_way if view.number >= since]
    events: Iterable[LeaseEvent | PreemptionRow]
    events = merge(story.events, others, key=attrgetter("number"))
    for event in events:
        if isinstance(event, PreemptionRow):
            lines.append(_made_way(event, clocks))
            continue
        promise_writer = _PROMISE_WRITERS.get(event.kind)
        if promise_writer is not None:
            lines.append(promise_writer(event, clocks))
            continue
        hold = holds.get(event.lease_id) if event.lease_id else None
        write = WRITERS.get(event.kind)
        if hold is None or write is None:
            continue
        why = story.reasons.get(hold.lease.number)
        key = hold.lease.pk
        logged = LoggedEvent(
            event,
            hold,
            clocks.instant(event.at),
            why,
            moves.get(key),
            key in arrived,
            later.get(key),
            losses.get(key, NO_LOSS).text,
            early.get(key),
            length_text(story.job.pool, hold, event.term),
        )
        line = write(logged)
        if line is None:
            continue
        last = lines[-1] if lines else None
        if last and line.key and last.key == line.key:
            lines[-1] = _again(last, line)
        else:
            lines.append(line)
    if not story.cut:
        lines.insert(0, _submitted(story, clocks))
    return lines[::-1]


def with_changes(
    lines: Sequence[LogLine], changes: Iterable[JobChange], clocks: Clocks
) -> list[LogLine]:
    """Return the lines of a log with those of people's changes, newest first."""
    made = [_changed(change, clocks) for change in changes]
    return list(merge(lines, made[::-1], key=_pool_time, reverse=True))


def _pool_time(line: LogLine) -> datetime:
    return line.at.pool if line.at else _FIRST


def _changed(change: JobChange, clocks: Clocks) -> LogLine:
    who = change.person or pgettext("by", "an operator")
    bold, icon = pgettext("job", "Held"), "waiting"
    if change.action != HELD:
        bold, icon = _("Released"), "submitted"
    text = _("by {person}.").format(person=who)
    if change.action == PRIORITY:
        bold = _("Priority")
        text = _("from {before} to {after}, by {person}.").format(
            before=change.before["priority"], after=change.after["priority"], person=who
        )
    return LogLine(clocks.pool_instant(change.at), icon, bold, text, None)


_FIRST = datetime.min.replace(tzinfo=UTC)


def _submitted(story: JobStory, clocks: Clocks) -> LogLine:
    job = story.job
    origins = {
        "api": _("through the API"),
        "trace": _("from the demo's trace"),
        "web": _("from this portal"),
    }
    text = origins.get(job.source) or _("from {source}").format(source=job.source)
    if person := job.submitted_by.get_full_name() if job.submitted_by else "":
        text = _("by {person} {origin}").format(person=person, origin=text)
    at = clocks.instant(job.submitted_at)
    return LogLine(at, "submitted", _("Submitted"), f"{text}.", None)


def _late_start(event: LeaseEvent, clocks: Clocks) -> LogLine:
    late_us = event.data["until_us"] - event.data["latest_us"]
    latest = clocks.instant(from_us(event.data["latest_us"]))
    credit = late_credit_micro(event.data["gpus"], to_micro(Decimal(event.data["rate"])), late_us)
    text = _(
        "it stopped waiting {time} after {latest}, its promised latest start. The operator pays"
        " {credits} credits."
    )
    if event.data["started"]:
        text = _(
            "it started {time} after {latest}, its promised latest start. The operator pays"
            " {credits} credits."
        )
    text = text.format(
        time=duration(late_us // SECOND_US),
        latest=latest.seconds if latest else "",
        credits=credits_text(to_credits(credit), 6),
    )
    return LogLine(clocks.instant(event.at), "bad", _("Late:"), text, event.round)


def _promise_ended(event: LeaseEvent, clocks: Clocks) -> LogLine:
    text = _("the start by {time} no longer holds.")
    if event.data["lost_node"]:
        text = _("the start by {time} no longer holds, because a node of its place was lost.")
    due = clocks.instant(from_us(event.data["due_us"]))
    text = text.format(time=due.seconds if due else "")
    return LogLine(clocks.instant(event.at), "bad", _("Promise ended:"), text, event.round)


_PROMISE_WRITERS: dict[str, Callable[[LeaseEvent, Clocks], LogLine]] = {
    Kind.LATE_START: _late_start,
    Kind.PROMISE_ENDED: _promise_ended,
}


def _made_way(view: PreemptionRow, clocks: Clocks) -> LogLine:
    """Return the line of a lease that ended early for this job, as on that lease's own page."""
    text = _("{gpus} of {tenant}, whose job was preempted with {time} notice.")
    if view.moved:
        text = _("{gpus} of {tenant}, whose job was moved with {time} notice.")
    text = text.format(
        gpus=gpus_of_type(view.gpus, view.gpu_type),
        tenant=view.tenant.name if view.tenant else pgettext("of", "another tenant"),
        time=duration(view.notice_s),
    )
    text = f"{text} {_after_notice(view)}"
    return LogLine(
        clocks.instant(view.at), "waiting", _("Made way for it:"), text, view.round,
        job=view.job, rule=rule_text(view.rule),
        note=numbers_note(view.rule, view.numbers, clocks),
    )  # fmt: skip # rows of what belongs together


def _after_notice(view: PreemptionRow) -> str:
    used_s = view.notice_used_s
    if used_s is None:
        return _("It is checkpointing and stopping.")
    if view.finished:
        return _("The job ended first.")
    if used_s < 1:
        return _("It exited immediately.")
    return _("It exited {time} later.").format(time=duration(used_s))


def _again(last: LogLine, line: LogLine) -> LogLine:
    times = last.times + line.times
    return replace(
        line, bold=_("Renewed {count} times").format(count=thousands(times)), times=times
    )
