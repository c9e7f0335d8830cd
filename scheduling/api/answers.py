"""What rounds answered to a job with a deadline, as the API tells it."""

from __future__ import annotations

from uuid import UUID

from scheduling.api.base import JobView
from scheduling.engine.clock import read_clock
from scheduling.selectors.deadlines.answers import (
    DeadlineStory,
    read_deadline_story,
)
from tenants.answers import Answer
from tenants.scopes import tenant_scope


class DeadlineHistoryAnswer(Answer, frozen=True):
    """Null: the job has no deadline."""

    deadline_answer: DeadlineStory | None


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
