"""What rounds answered to jobs with deadlines, how such a job stands now, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from evenshare_core.domain.deadlines import DeadlineAnswer, DeadlineState
from evenshare_core.domain.instants import from_us
from scheduling.models import Job, JobAnswer
from scheduling.selectors.deadlines import deadline_steps_of

# So many answers of one job are shown, the newest.
HISTORY_MAX = 50


class DeadlineStanding(StrEnum):
    """How a job with a deadline stands. Names are part of the API."""

    UNANSWERED = "unanswered"  # no round has answered it
    PLANNED = "planned"
    REFUSED = "refused"
    MISSED = "missed"  # its last deadline is over; also where nobody answered
    MET = "met"  # it succeeded by a step
    ENDED = "ended"  # it was cancelled or failed before its last deadline


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer as a round published it. Instants of pool time; millionths of a point; thousandths.

    `moved`: how much later its plan ends than in the answer before; None: one of them has no plan.
    """

    state: DeadlineState
    round: int
    at: datetime
    by: datetime | None
    reward_micro: int
    gpu_type: str
    gpus: int
    one_node: bool
    leases: tuple[tuple[datetime, datetime], ...]
    chance_milli: int | None
    limit: str
    blocked: tuple[tuple[datetime, datetime], ...]
    earliest: datetime | None
    cause: str
    moved: timedelta | None = None

    @property
    def ends(self) -> datetime | None:
        """When its plan ends; None: it has none."""
        return self.leases[-1][1] if self.leases else None


@dataclass(frozen=True, slots=True)
class DeadlineStory:
    """How a job stands to its deadline, and the answers it was given, newest first.

    `by`, `reward_micro`: of one that met, the step by which it ended, and `spare` how much earlier;
    of any other `by` is the step that it has to meet, or the last that it missed. `is_over`: it has
    ended. `cut`: there are older answers.
    """

    standing: DeadlineStanding
    by: datetime
    reward_micro: int
    spare: timedelta | None
    is_over: bool
    answers: tuple[AnswerView, ...]
    cut: bool = False

    @property
    def last(self) -> AnswerView | None:
        """What was answered last."""
        return self.answers[0] if self.answers else None


def read_deadline_story(job: Job, *, at: datetime) -> DeadlineStory | None:
    """Return a job's deadline and answers at pool time `at`; None: it has none. One query."""
    if job.deadline_at is None:
        return None
    rows = list(JobAnswer.objects.filter(job=job).order_by("-round")[: HISTORY_MAX + 1])
    return _story(job, rows, at)


def read_standings(jobs: Iterable[Job], at: Mapping[int, datetime]) -> dict[int, DeadlineStory]:
    """Return how jobs stand by their last answers alone, by job id; `at`: pool time by pool,
    which one that has ended need not have.

    Left out are those without a deadline. One query at most.
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
    return DeadlineStory(
        standing, by, reward_micro, spare, not job.is_active, views, len(rows) > HISTORY_MAX
    )


def _standing(
    job: Job, views: tuple[AnswerView, ...], steps: list[tuple[datetime, int]], at: datetime
) -> tuple[DeadlineStanding, int]:
    """How it stands, and the place of the step that this is about."""
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
    return AnswerView(
        DeadlineState(row.state),
        row.round,
        row.at,
        row.by_at,
        row.reward_micro,
        row.gpu_type,
        row.gpus,
        row.one_node,
        _instants(row.leases),
        row.chance_milli,
        row.limited_by,
        _instants(row.blocked),
        row.earliest_at,
        row.cause,
    )


def _instants(leases: Iterable[Sequence[int]]) -> tuple[tuple[datetime, datetime], ...]:
    return tuple((from_us(start_us), from_us(end_us)) for start_us, end_us in leases)


def view_of(answer: DeadlineAnswer, *, number: int, at: datetime) -> AnswerView:
    """Return an answer that is in no table as it is read from there; of round `number`, `at`."""
    return AnswerView(
        answer.state,
        number,
        at,
        from_us(answer.by_us) if answer.by_us else None,
        answer.reward_micro,
        answer.gpu_type,
        answer.gpus,
        answer.one_node,
        _instants(answer.leases),
        answer.chance_milli,
        "" if answer.limit is None else answer.limit.value,
        _instants(answer.blocked),
        None if answer.earliest_us is None else from_us(answer.earliest_us),
        answer.cause,
    )


def _with_moves(views: list[AnswerView]) -> tuple[AnswerView, ...]:
    """Answers, newest first, each with how much later than the one before its plan ends."""
    moved = []
    for view, before in zip(views, [*views[1:], None], strict=False):
        ends, ended = view.ends, before.ends if before else None
        later = ends - ended if ends is not None and ended is not None else None
        moved.append(replace(view, moved=later))
    return tuple(moved)
