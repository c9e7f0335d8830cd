"""What a round answered to jobs with deadlines, as one viewer may see it.

Answers are news: a job of which there is none stands as it was answered before. Of tenants in sight
everybody sees what was answered, when it is planned and on how many GPUs, as on the pool's page;
name, deadline, chance and the earliest deadline that would do are for the job's own people and the
operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from evenshare_core.domain.deadlines import DeadlineAnswer, DeadlineState, PlanCause
from scheduling.selectors.deadlines.answers import AnswerView, view_of
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.answers import Answer, formatted_as, plain


class AnswerKind(StrEnum):
    """What an answer says, in the order in which they are shown. Names are part of the API."""

    MISSED = "missed"
    REFUSED = "refused"
    MOVED = "moved"  # planned before, and for a cause otherwise now
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """One answer; `answer` is without what is not for the viewer, and `job` None with it."""

    kind: AnswerKind
    tenant: VisibleTenant
    job: JobRef | None
    answer: AnswerView


def _flat(rows: tuple[RoundAnswer, ...]) -> list[dict[str, Any]]:
    """What is answered beside whom it is for."""
    return [
        {"kind": row.kind, "tenant": row.tenant, "job": row.job, **plain(row.answer)}
        for row in rows
    ]


_NAMES = {"dated": "jobs_with_deadlines", "hidden": "rows_hidden"}


class RoundAnswers(Answer, frozen=True, rename=_NAMES):
    """What a round answered; `counts` of all, `rows` of those in sight.

    `dated`: its jobs with deadlines, answered anew or not. `hidden`: how many are out of sight, or
    beyond the limit of rows.
    """

    counts: Mapping[AnswerKind, int]
    dated: int
    rows: Annotated[tuple[RoundAnswer, ...], formatted_as(_flat)]
    hidden: int

    @property
    def answered(self) -> int:
        """How many were answered."""
        return sum(self.counts.values())


def kind_of(answer: DeadlineAnswer) -> AnswerKind:
    if answer.state is DeadlineState.PLANNED:
        return AnswerKind.MOVED if answer.cause else AnswerKind.PLANNED
    return AnswerKind(answer.state.value)


def round_answers(
    answers: Sequence[DeadlineAnswer],
    shown: Sequence[DeadlineAnswer],
    visibility: Visibility,
    jobs: Mapping[int, JobRef],
    *,
    number: int,
    at: datetime,
    dated: int,
) -> RoundAnswers:
    """Return a round's answers by kind, then by job. No query.

    `answers`: all of them; `shown`: those of tenants in sight, within the limit of rows; `jobs`:
    those that the viewer may know, by id; `dated`: how many of the round's jobs have deadlines.
    """
    order = list(AnswerKind)
    counts = dict.fromkeys(order, 0)
    for row in answers:
        counts[kind_of(row)] += 1
    rows = tuple(
        RoundAnswer(
            kind_of(row),
            seen,
            jobs.get(row.job),
            _visible(view_of(row, number=number, at=at), is_theirs=visibility.jobs_of(row.tenant)),
        )
        for row in sorted(shown, key=lambda row: (order.index(kind_of(row)), row.job))
        if (seen := visibility.of(row.tenant))
    )
    return RoundAnswers(counts, dated, rows, len(answers) - len(rows))


def _visible(view: AnswerView, *, is_theirs: bool) -> AnswerView:
    """The answer, of another's job without what is its tenant's own affair."""
    if is_theirs:
        return view
    # A policy's own sentence may say anything; a word of ours tells of no job.
    cause = view.cause if view.cause in set(PlanCause) else ""
    return msgspec.structs.replace(
        view, by=None, reward_micro=0, chance_milli=None, blocked=(), earliest=None, cause=cause
    )
