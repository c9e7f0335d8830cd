"""Data of templates/jobs/_answer.html: the state of a job's deadline, and the rounds' answers."""

from datetime import datetime
from typing import Any

from evenshare_core.domain.deadlines import DeadlineState
from evenshare_core.policies import registry
from evenshare_core.units import REWARD_MICRO
from portal.charts.figures import clock, duration, plural, thousands, utc
from portal.charts.timeline import JobTimeline, Segment, timeline
from portal.common.clocks import Clocks
from portal.common.standings import STANDING_BADGES
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


def answer_context(story: JobStory, clocks: Clocks) -> dict[str, Any]:
    """Return rounds' answers to a job's deadline; `answer_title` is empty without a deadline."""
    job = story.job
    deadline = read_deadline_story(job, at=clocks.now.pool_at)
    if deadline is None:
        return {"answer_title": ""}
    last = deadline.last
    return {
        "answer_title": answer_title(job, deadline),
        "answer_kind": STANDING_BADGES[deadline.standing],
        "answer_standing": f"{deadline.standing.value.capitalize()}.",
        "answer_by": clocks.instant(deadline.by),
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
        return "Planned; its deadline is beyond the planned leases"
    if deadline.standing is DeadlineStanding.PLANNED and last is not None and last.ends is not None:
        early_s = (by - last.ends).total_seconds()
        return f"Planned to end {duration(early_s)} before its deadline"
    if deadline.standing is DeadlineStanding.REFUSED and last is not None:
        return f"Deadline refused: {limit_text(last.limit)}"
    if deadline.standing is DeadlineStanding.ENDED:
        return "Ended before its deadline, without a result"
    return _over_title(job, deadline) or "Deadline not answered yet"


def _is_beyond(job: Job, deadline: DeadlineStory) -> bool:
    """Return whether the job's plan lies beyond the time for which rounds plan leases."""
    horizon_s, last = deadline_horizon_s(job.pool), deadline.last
    if deadline.standing is not DeadlineStanding.PLANNED or last is None or horizon_s is None:
        return False
    return (deadline.by - last.at).total_seconds() > horizon_s


def _over_title(job: Job, deadline: DeadlineStory) -> str:
    """Return whether a deadline was met, and by how much; empty if that is not known yet."""
    if deadline.standing is DeadlineStanding.MET and deadline.spare is not None:
        return f"Deadline met, with {duration(deadline.spare.total_seconds())} to spare"
    if deadline.standing is not DeadlineStanding.MISSED:
        return ""
    if job.ended_at is None:
        return "Deadline missed: it runs without a plan"
    return f"Deadline missed, by {duration((job.ended_at - deadline.by).total_seconds())}"


def _earliest(deadline: DeadlineStory) -> datetime | None:
    """Return the earliest feasible deadline of a refused job."""
    is_refused = deadline.standing is DeadlineStanding.REFUSED
    return deadline.last.earliest if is_refused and deadline.last is not None else None


def _earliest_text(deadline: DeadlineStory) -> str:
    """Return the earliest feasible deadline in the format of a submission."""
    earliest = _earliest(deadline)
    return f"{earliest:%Y-%m-%dT%H:%M:%S.%fZ}" if earliest is not None else ""


def _text(job: Job, deadline: DeadlineStory) -> str:
    last = deadline.last
    if deadline.standing is DeadlineStanding.UNANSWERED:
        if registry.traits(job.pool.policy).answers_deadlines:
            return "The next round decides whether its deadline can be met."
        return unanswered_text(job.pool.policy)
    if deadline.standing is DeadlineStanding.PLANNED and last is not None:
        chance = f"End in time: {chance_text(last.chance_milli)}."
        return f"{_beyond_text(job)} {chance}" if _is_beyond(job, deadline) else chance
    if deadline.standing is DeadlineStanding.REFUSED:
        text = "The job still runs, without a plan, on GPUs that are left over."
        none = none_text(last.limit) if last is not None and last.earliest is None else ""
        return f"{none} {text}".strip()
    return ""


def _beyond_text(job: Job) -> str:
    hours = thousands((deadline_horizon_s(job.pool) or 0) / 3600, 1)
    return (
        f"This pool plans leases {hours} hours ahead. The job has planned leases only for work"
        " that must run before then. For the rest, GPUs are reserved without planned leases."
    )


def _points(job: Job, deadline: DeadlineStory) -> str:
    """Return the points for completing by each deadline; empty if there is only one."""
    if len(deadline_steps_of(job)) < 2:
        return ""
    return plural(deadline.reward_micro // REWARD_MICRO, "point")


def _place(view: AnswerView) -> str:
    nodes = "on one node" if view.one_node else "over several nodes"
    return f"{plural(view.gpus, 'GPU')} of {view.gpu_type}, {nodes}"


def _line(view: AnswerView, clocks: Clocks) -> dict[str, Any]:
    return {
        "at": clocks.instant(view.at),
        "round": view.round,
        "state": view.state.value,
        "kind": STANDING_BADGES[DeadlineStanding(view.state.value)],
        "text": _answer_text(view),
    }


def _answer_text(view: AnswerView) -> str:
    if view.state is DeadlineState.MISSED:
        return "Missed"
    if view.state is DeadlineState.REFUSED:
        return f"Refused: {limit_text(view.limit)}"
    said = f"Planned until {clock(view.ends)}" if view.ends else "Planned"
    moved_s = view.moved.total_seconds() if view.moved is not None else 0
    if moved_s:
        way = "later" if moved_s > 0 else "earlier"
        said += f", moved {way} by {duration(abs(moved_s))}"
    return f"{said}: {cause_text(view.cause)}" if view.cause else said


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
    label = "Past and planned leases until the deadline"
    return timeline(JobTimeline(begin, end, now, segments, label=label))


def _had(hold: LeaseView, now: datetime) -> Segment:
    start = hold.lease.started_at
    assert start is not None  # noqa: S101 - asked of those that began
    return Segment("run", start, max(start, hold.lease.ended_at or now))


def preview_text(preview: DeadlinePreview | None) -> str:
    """Return the next round's answer in a sentence or two; empty if no deadline was given."""
    if preview is None:
        return ""
    view = preview.answer
    if view is None:
        return preview.text
    if view.state is DeadlineState.PLANNED and view.ends is not None:
        return (
            f"Round {preview.number:,} would plan it to end by {utc(view.ends)}, on"
            f" {_place(view)}: {chance_text(view.chance_milli)}. This assumes that nothing else"
            " changes; a plan is not a reservation."
        )
    if view.state is DeadlineState.REFUSED:
        text = f"Round {preview.number:,} would refuse its deadline: {limit_text(view.limit)}."
        if view.earliest is None:
            return f"{text} {none_text(view.limit)}"
        return f"{text} Earliest feasible deadline: {utc(view.earliest)}."
    return "Its deadline is before the next round."
