"""Writes a round's answers to jobs with deadlines. The rows never change."""

from collections.abc import Iterable
from datetime import datetime

from evenshare_core.domain.deadlines import DeadlineAnswer, PlannedLease
from evenshare_core.domain.instants import from_us
from scheduling.engine.bulk import document, insert_rows
from scheduling.engine.write import RoundWrite
from scheduling.models import Job

_COLUMNS = (
    *("job_id", "tenant_id", "round", "at", "state", "by_at", "reward_micro", "gpu_type", "gpus"),
    *("one_node", "leases", "chance_milli", "limited_by", "blocked", "earliest_at", "cause"),
)
CAUSE_MAX = 255


def write_answers(write: RoundWrite) -> None:
    """Insert each answer; skip jobs that were deleted since the snapshot."""
    answers = {answer.job: answer for answer in write.plan.decision.answers}
    if not answers:
        return
    there = Job.objects.filter(pk__in=answers).values_list("pk", flat=True)
    rows = [_row(write, answers[job]) for job in sorted(there)]
    if rows:
        insert_rows("scheduling_jobanswer", _COLUMNS, rows)


def _row(write: RoundWrite, answer: DeadlineAnswer) -> tuple[object, ...]:
    return (
        answer.job,
        answer.tenant,
        write.plan.snapshot.number,
        write.at,
        answer.state.value,
        _instant(answer.by_us or None),
        answer.reward_micro,
        answer.gpu_type,
        answer.gpus,
        answer.one_node,
        _document(answer.leases),
        answer.chance_milli,
        "" if answer.limit is None else answer.limit.value,
        _document(answer.blocked),
        _instant(answer.earliest_us),
        answer.cause[:CAUSE_MAX],
    )


def _instant(instant_us: int | None) -> datetime | None:
    return None if instant_us is None else from_us(instant_us)


def _document(leases: Iterable[PlannedLease]) -> str | None:
    return document([list(lease) for lease in leases])
