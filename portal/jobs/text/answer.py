"""Data of templates/jobs/_answer.html: the state of a job's deadline, and the rounds' answers."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from evenshare_core.domain.deadlines import DeadlineState
from evenshare_core.policies import registry
from evenshare_core.units import REWARD_MICRO
from portal.charts.figures import duration, plural, thousands, utc
from portal.charts.notes import Instant
from portal.charts.timeline import JobTimeline, Segment, timeline
from portal.common.clocks import Clocks
from portal.common.standings import STANDING_BADGES, standing_badge
from scheduling.models import Job
from scheduling.selectors.deadlines.answers import (
    AnswerView,
    DeadlineStanding,
    DeadlineStory,
    read_deadline_story,
)
from scheduling.selectors.deadlines.instants import deadline_horizon_s, deadline_steps_of
from scheduling.selectors.deadlines.texts import (
    cause_text,
    chance_text,
    limit_text,
    none_text,
    unanswered_text,
)
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView
from scheduling.services.deadline_preview import DeadlinePreview
from tenants.answers import time_text


def answer_context(story: JobStory, clocks: Clocks) -> dict[str, Any]:
    """Return rounds' answers to a job's deadline; `answer_title` is empty without a deadline."""
    job = story.job
    deadline = read_deadline_story(job, at=clocks.now.pool_at)
    if deadline is None:
        return {"answer_title": ""}
    last, badge = deadline.last, standing_badge(deadline, clocks)
    return {
        "answer_title": answer_title(job, deadline),
        "answer_kind": badge.kind,
        "answer_standing": f"{badge.text.capitalize()}.",
        "answer_by": badge.due,
        "answer_points": _points(job, deadline),
        "answer_text": _text(job, deadline),
        "answer_place": _place(last) if last and last.leases else "",
        "answer_earliest": clocks.instant(_earliest(deadline)),
        "answer_deadline": _earliest_text(deadline),
        "answer_lines": [_line(view, clocks) for view in deadline.answers],
        "answer_cut": deadline.cut,
        "answer_svg": _drawing(story, deadline, clocks.now.pool_at),
    }


def answer_title(job: Job, deadline: DeadlineStory) -> str:
    """Return the state of the deadline as a heading."""
    last, by = deadline.last, deadline.by
    if _is_beyond(job, deadline):
        return _("Planned; its deadline is beyond the planned leases")
    if deadline.standing is DeadlineStanding.PLANNED and last is not None and last.ends is not None:
        early = duration((by - last.ends).total_seconds())
        return _("Planned to end {time} before its deadline").format(time=early)
    if deadline.standing is DeadlineStanding.REFUSED and last is not None:
        return _("Deadline refused: {reason}").format(reason=limit_text(last.limit))
    if deadline.standing is DeadlineStanding.ENDED:
        return _("Ended before its deadline, without a result")
    return _over_title(job, deadline) or _("Deadline not answered yet")


def _is_beyond(job: Job, deadline: DeadlineStory) -> bool:
    """Return whether the job's plan lies beyond the time for which rounds plan leases."""
    horizon_s, last = deadline_horizon_s(job.pool), deadline.last
    if deadline.standing is not DeadlineStanding.PLANNED or last is None or horizon_s is None:
        return False
    return (deadline.by - last.at).total_seconds() > horizon_s


def _over_title(job: Job, deadline: DeadlineStory) -> str:
    """Return whether a deadline was met, and by how much; empty if that is not known yet."""
    if deadline.standing is DeadlineStanding.MET and deadline.spare is not None:
        spare = duration(deadline.spare.total_seconds())
        return _("Deadline met, with {time} to spare").format(time=spare)
    if deadline.standing is not DeadlineStanding.MISSED:
        return ""
    if job.ended_at is None:
        return _("Deadline missed: it runs without a plan")
    late = duration((job.ended_at - deadline.by).total_seconds())
    return _("Deadline missed, by {time}").format(time=late)


def _earliest(deadline: DeadlineStory) -> datetime | None:
    """Return the earliest feasible deadline of a refused job."""
    is_refused = deadline.standing is DeadlineStanding.REFUSED
    return deadline.last.earliest if is_refused and deadline.last is not None else None


def _earliest_text(deadline: DeadlineStory) -> str:
    """Return the earliest feasible deadline in the format of a submission."""
    earliest = _earliest(deadline)
    return time_text(earliest) or ""


def _text(job: Job, deadline: DeadlineStory) -> str:
    last = deadline.last
    if deadline.standing is DeadlineStanding.UNANSWERED:
        if registry.traits(job.pool.policy).answers_deadlines:
            return _("The next round decides whether its deadline can be met.")
        return unanswered_text(job.pool.policy)
    if deadline.standing is DeadlineStanding.PLANNED and last is not None:
        chance = _("End in time: {chance}.").format(chance=chance_text(last.chance_milli))
        return f"{_beyond_text(job)} {chance}" if _is_beyond(job, deadline) else chance
    if deadline.standing is DeadlineStanding.REFUSED:
        text = _("The job still runs, without a plan, on GPUs that are left over.")
        none = none_text(last.limit) if last is not None and last.earliest is None else ""
        return f"{none} {text}".strip()
    return ""


def _beyond_text(job: Job) -> str:
    hours = thousands((deadline_horizon_s(job.pool) or 0) / 3600, 1)
    return _(
        "This pool plans leases {hours} hours ahead. The job has planned leases only for work"
        " that must run before then. For the rest, GPUs are reserved without planned leases."
    ).format(hours=hours)


def _points(job: Job, deadline: DeadlineStory) -> str:
    """Return the points for completing by each deadline; empty if there is only one."""
    if len(deadline_steps_of(job)) < 2:
        return ""
    return plural(deadline.reward_micro // REWARD_MICRO, "point")


def _place(view: AnswerView) -> str:
    if view.one_node:
        text = _("{gpus} of {gpu_type}, on one node")
    else:
        text = _("{gpus} of {gpu_type}, over several nodes")
    return text.format(gpus=plural(view.gpus, "GPU"), gpu_type=view.gpu_type)


def _line(view: AnswerView, clocks: Clocks) -> dict[str, Any]:
    return {
        "at": clocks.instant(view.at),
        "round": view.round,
        "state": view.state.value,
        "kind": STANDING_BADGES[DeadlineStanding(view.state.value)],
        "text": _answer_text(view, clocks),
    }


def _answer_text(view: AnswerView, clocks: Clocks) -> str:
    if view.state is DeadlineState.MISSED:
        return _("Missed")
    if view.state is DeadlineState.REFUSED:
        return _("Refused: {reason}").format(reason=limit_text(view.limit))
    said = _planned_text(view, clocks.instant(view.ends))
    return f"{said}: {cause_text(view.cause)}" if view.cause else said


def _planned_text(view: AnswerView, ends: Instant | None) -> str:
    moved_s = view.moved.total_seconds() if view.moved is not None else 0
    if ends is None:
        return _("Planned")
    if not moved_s:
        text = _("Planned until {end}")
    elif moved_s > 0:
        text = _("Planned until {end}, moved later by {time}")
    else:
        text = _("Planned until {end}, moved earlier by {time}")
    return text.format(end=ends.clock, time=duration(abs(moved_s)))


def _drawing(story: JobStory, deadline: DeadlineStory, now: datetime) -> object:
    """Return the past and the planned leases on one clock, or None if none is planned."""
    had = [_had(hold, now) for hold in story.holds if hold.lease.started_at is not None]
    last = deadline.last
    planned = last.leases if last is not None and not deadline.is_over else ()
    to_come = [
        Segment("expected", max(one.starts_at, now), one.ends_at)
        for one in planned
        if one.ends_at > now
    ]
    if not to_come:
        return None  # the timeline above already shows past leases
    segments = (*had, *to_come)
    begin = min(segment.start for segment in segments)
    end = max(deadline.by, *(segment.end for segment in segments))
    label = _("Past and planned leases until the deadline")
    return timeline(JobTimeline(begin, end, now, segments, label=label))


def _had(hold: LeaseView, now: datetime) -> Segment:
    start = hold.lease.started_at
    assert start is not None  # noqa: S101 - asked of those that began
    return Segment("run", start, max(start, hold.lease.ended_at or now))


def preview_text(preview: DeadlinePreview | None) -> str:
    """Return the next round's answer in a sentence or two; empty if no deadline was given."""
    if preview is None:
        return ""
    view, number = preview.answer, thousands(preview.number)
    if view is None:
        return preview.text
    if view.state is DeadlineState.PLANNED and view.ends is not None:
        return _(
            "Round {round} would plan it to end by {end}, on {gpus}: {chance}. This assumes that"
            " nothing else changes; a plan is not a reservation."
        ).format(
            round=number,
            end=utc(view.ends),
            gpus=_place(view),
            chance=chance_text(view.chance_milli),
        )
    if view.state is DeadlineState.REFUSED:
        text = _("Round {round} would refuse its deadline: {reason}.")
        refused = text.format(round=number, reason=limit_text(view.limit))
        if view.earliest is None:
            return f"{refused} {none_text(view.limit)}"
        earliest = _("Earliest feasible deadline: {time}.").format(time=utc(view.earliest))
        return f"{refused} {earliest}"
    return _("Its deadline is before the next round.")
