"""Rounds' answers to jobs with deadlines, and the jobs' current or final states."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec

from evenshare_core.domain.deadlines import DeadlineAnswer, DeadlineLimit, DeadlineState
from evenshare_core.domain.instants import from_us
from evenshare_core.units import ONE_MILLI, REWARD_MICRO
from scheduling.models import Job, JobAnswer
from scheduling.selectors.deadlines.instants import deadline_steps_of
from tenants.answers import Answer, Hidden, about, answer_of, formatted_as, one_of

# The maximum number of answers shown per job; the newest are shown.
HISTORY_MAX = 50


class DeadlineStanding(StrEnum):
    """The state of a job with a deadline. Names are part of the API."""

    UNANSWERED = "unanswered"  # no round has answered the job yet
    PLANNED = "planned"
    REFUSED = "refused"
    MISSED = "missed"  # its last deadline has passed, whether or not a round answered it
    MET = "met"  # it succeeded before one of its deadline steps
    ENDED = "ended"  # it was cancelled or failed before its last deadline


def _points(reward_micro: int) -> str:
    return f"{reward_micro // REWARD_MICRO}.{reward_micro % REWARD_MICRO:06d}"


def _chance(milli: int) -> float:
    return milli / ONE_MILLI


class LeaseStretch(Answer, frozen=True):
    """A period with planned leases and no gap between them."""

    COMPONENT = "PlannedLeaseRow"

    starts_at: datetime
    ends_at: datetime


Points = Annotated[int, formatted_as(_points, pattern=r"^[0-9]+\.[0-9]{6}$")]
_NAMES = {"reward_micro": "points", "chance_milli": "chance", "moved": "moved_s"}


class AnswerView(Answer, frozen=True, rename=_NAMES):
    """A round's answer; times are pool time. Plans are not binding: each round plans again.

    If refused, `limit` is the obstacle, and `blocked` lists the periods without enough free GPUs.
    `earliest` is the earliest deadline that could be met, or null if none is known.
    """

    COMPONENT = "GivenAnswer"

    state: DeadlineState
    round: int
    at: datetime
    by: Annotated[datetime | None, about("The step that the plan meets.")]
    reward_micro: Points
    gpu_type: str
    gpus: int
    one_node: bool
    leases: tuple[LeaseStretch, ...]
    chance_milli: Annotated[
        int | None,
        formatted_as(_chance, type="number"),
        about("Probability that the job ends by then, 0 to 1; null: unknown."),
    ]
    limit: Annotated[str, one_of("", *DeadlineLimit)]
    blocked: tuple[LeaseStretch, ...]
    earliest: datetime | None
    cause: Annotated[str, about("Why the previous plan moved.")]
    moved: Annotated[
        timedelta | None,
        about("How much later it ends than in the previous plan; null: unknown."),
    ] = None

    @property
    def ends(self) -> datetime | None:
        """The planned end; None without a plan."""
        return self.leases[-1].ends_at if self.leases else None


_STANDING = {"reward_micro": "points", "spare": "spare_s", "last": "answer"}


class DeadlineRow(Answer, frozen=True, rename=_STANDING):
    """The state of a job with a deadline.

    `by` and `points` describe a deadline step: the last one that the job met or missed, or the next
    one. `spare_s`: how many seconds before that step the job ended. `answer`: the last answer, or
    null.
    """

    standing: DeadlineStanding
    by: datetime
    reward_micro: Points
    spare: timedelta | None
    last: AnswerView | None


class DeadlineStory(DeadlineRow, frozen=True, rename=_STANDING):
    """The state of a job with a deadline and its answers, newest first.

    `cut` is true if older answers are missing.
    """

    COMPONENT = "DeadlineHistory"

    answers: tuple[AnswerView, ...]
    cut: bool
    is_over: Hidden[bool]  # the job has ended


def read_deadline_story(job: Job, *, at: datetime) -> DeadlineStory | None:
    """Return a job's deadline and answers at pool time `at`, or None if it has no deadline."""
    if job.deadline_at is None:
        return None
    rows = list(JobAnswer.objects.filter(job=job).order_by("-round")[: HISTORY_MAX + 1])
    return _story(job, rows, at)


def read_standings(jobs: Iterable[Job], at: Mapping[int, datetime]) -> dict[int, DeadlineStory]:
    """Return the states of jobs with deadlines, by job id, from their last answers.

    `at` is the pool time of each pool, by its id; pools with only ended jobs may be missing. At
    most one query.
    """
    dated = {job.pk: job for job in jobs if job.deadline_at is not None}
    if not dated:
        return {}
    rows = JobAnswer.objects.filter(job__in=dated).order_by("job_id", "-round").distinct("job_id")
    last = {row.job_id: row for row in rows}
    stories = {}
    for pk, job in dated.items():
        story = _story(job, [last[pk]] if pk in last else [], at.get(job.pool_id, job.submitted_at))
        if story is not None:
            stories[pk] = story
    return stories


def _story(job: Job, rows: list[JobAnswer], at: datetime) -> DeadlineStory | None:
    steps = [(from_us(step.by_us), step.reward_micro) for step in deadline_steps_of(job)]
    if not steps:
        return None
    views = _with_moves([_view(row) for row in rows])[:HISTORY_MAX]
    standing, place = _standing(job, views, steps, at)
    by, reward_micro = steps[place]
    is_met = standing is DeadlineStanding.MET
    spare = by - job.ended_at if is_met and job.ended_at is not None else None
    last, is_cut = views[0] if views else None, len(rows) > HISTORY_MAX
    return DeadlineStory(standing, by, reward_micro, spare, last, views, is_cut, not job.is_active)


def _standing(
    job: Job, views: tuple[AnswerView, ...], steps: list[tuple[datetime, int]], at: datetime
) -> tuple[DeadlineStanding, int]:
    """Return the state, and the index of the step that it refers to."""
    until = job.ended_at or at
    left = [place for place, (by, _) in enumerate(steps) if until <= by]
    if not left:
        return DeadlineStanding.MISSED, len(steps) - 1
    if job.state == Job.State.SUCCEEDED:
        return DeadlineStanding.MET, left[0]
    if not job.is_active:
        return DeadlineStanding.ENDED, left[0]
    if not views:
        return DeadlineStanding.UNANSWERED, left[0]
    planned = [place for place in left if steps[place][0] == views[0].by]
    return DeadlineStanding(views[0].state.value), (planned or left)[0]


def _view(row: JobAnswer) -> AnswerView:
    return answer_of(
        AnswerView,
        row,
        state=DeadlineState(row.state),
        by=row.by_at,
        leases=_planned(row.leases),
        limit=row.limited_by,
        blocked=_planned(row.blocked),
        earliest=row.earliest_at,
        moved=None,
    )


def _planned(leases: Iterable[Sequence[int]]) -> tuple[LeaseStretch, ...]:
    return tuple(LeaseStretch(from_us(start_us), from_us(end_us)) for start_us, end_us in leases)


def view_of(answer: DeadlineAnswer, *, number: int, at: datetime) -> AnswerView:
    """Convert an answer that is not stored in the database: that of round `number` at time `at`."""
    return answer_of(
        AnswerView,
        answer,
        round=number,
        at=at,
        by=from_us(answer.by_us) if answer.by_us else None,
        leases=_planned(answer.leases),
        limit="" if answer.limit is None else answer.limit.value,
        blocked=_planned(answer.blocked),
        moved=None,
        earliest=None if answer.earliest_us is None else from_us(answer.earliest_us),
    )


def _with_moves(views: list[AnswerView]) -> tuple[AnswerView, ...]:
    """Return answers, newest first, each with the shift of its planned end since the last plan."""
    moved = []
    for view, before in zip(views, [*views[1:], None], strict=False):
        ends, ended = view.ends, before.ends if before else None
        later = ends - ended if ends is not None and ended is not None else None
        moved.append(msgspec.structs.replace(view, moved=later))
    return tuple(moved)
