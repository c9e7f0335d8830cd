"""What rounds answered to a job with a deadline, as the API tells it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduling.api.base import JobView
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.selectors.deadlines.answers import (
    DeadlineRow,
    DeadlineStory,
    read_deadline_story,
    read_standings,
)
from tenants.answers import Answer, answer_of, plain
from tenants.scopes import tenant_scope


class DeadlineHistoryAnswer(Answer, frozen=True):
    """Null: the job has no deadline."""

    deadline_answer: DeadlineStory | None


def deadline_answers_json(
    jobs: Iterable[Job], at: dict[int, datetime]
) -> dict[int, dict[str, Any]]:
    """Return how jobs stand to their deadlines, by job id; none for those that have none."""
    stories = read_standings(jobs, at)
    return {pk: plain(answer_of(DeadlineRow, story)) for pk, story in stories.items()}


class JobDeadline(JobView):
    """Say how a job stands to its deadline, and all that rounds answered, newest first."""

    address = "jobs/<uuid:uid>/deadline"
    operation = "job_deadline"
    answer = DeadlineHistoryAnswer

    def show(self, uid: UUID) -> DeadlineHistoryAnswer:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            return DeadlineHistoryAnswer(
                read_deadline_story(job, at=read_clock(job.pool_id).pool_at)
            )
