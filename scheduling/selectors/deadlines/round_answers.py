"""A round's answers to jobs with deadlines, as one viewer may see them.

A job without a new answer keeps its last one. Viewers see the kind of answer, the planned times and
the GPUs for all tenants that are visible to them, as on the pool's page. Name, deadline, chance and
earliest possible deadline are shown only to members of the job's tenant and operators.
"""

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
    """The kind of an answer, in display order. Names are part of the API."""

    MISSED = "missed"
    REFUSED = "refused"
    MOVED = "moved"  # planned before, but now for other times; the cause is given
    PLANNED = "planned"


_KINDS = list(AnswerKind)


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """An answer without the parts that the viewer may not see; `job` is then None."""

    kind: AnswerKind
    tenant: VisibleTenant
    job: JobRef | None
    answer: AnswerView


def _flat(rows: tuple[RoundAnswer, ...]) -> list[dict[str, Any]]:
    return [
        {"kind": row.kind, "tenant": row.tenant, "job": row.job, **plain(row.answer)}
        for row in rows
    ]


_NAMES = {"dated": "jobs_with_deadlines", "hidden": "rows_hidden"}


class RoundAnswers(Answer, frozen=True, rename=_NAMES):
    """The answers of a round. `counts` include all of them, `rows` only those that you may see.

    `dated`: the number of the round's jobs with deadlines, with or without a new answer. `hidden`:
    the number of answers that are not in `rows`, because you may not see them or the table is full.
    """

    counts: Mapping[AnswerKind, int]
    dated: int
    rows: Annotated[tuple[RoundAnswer, ...], formatted_as(_flat)]
    hidden: int

    @property
    def answered(self) -> int:
        return sum(self.counts.values())


def kind_of(answer: DeadlineAnswer) -> AnswerKind:
    if answer.state is DeadlineState.PLANNED:
        return AnswerKind.MOVED if answer.cause else AnswerKind.PLANNED
    return AnswerKind(answer.state.value)


def answer_order(answer: DeadlineAnswer) -> tuple[int, int]:
    """Return the place of an answer in its table: by kind, then by job."""
    return _KINDS.index(kind_of(answer)), answer.job


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
    """Return a round's answers by kind, then by job, without a query.

    `answers`: all answers. `shown`: answers of visible tenants, as many as the table may have.
    `jobs`: the jobs that the viewer may see, by id. `dated`: the number of the round's jobs with
    deadlines.
    """
    counts = dict.fromkeys(_KINDS, 0)
    for row in answers:
        counts[kind_of(row)] += 1
    rows = tuple(
        RoundAnswer(
            kind_of(row),
            seen,
            jobs.get(row.job),
            _visible(view_of(row, number=number, at=at), is_theirs=visibility.jobs_of(row.tenant)),
        )
        for row in sorted(shown, key=answer_order)
        if (seen := visibility.of(row.tenant))
    )
    return RoundAnswers(counts, dated, rows, len(answers) - len(rows))


def _visible(view: AnswerView, *, is_theirs: bool) -> AnswerView:
    """Return the answer, without private values unless the viewer may see the tenant's jobs."""
    if is_theirs:
        return view
    # A policy's own text may contain anything. The causes in `PlanCause` reveal no job.
    cause = view.cause if view.cause in set(PlanCause) else ""
    return msgspec.structs.replace(
        view, by=None, reward_micro=0, chance_milli=None, blocked=(), earliest=None, cause=cause
    )
