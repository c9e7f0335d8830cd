"""REST view of a job with a deadline, and of each round's answer to it."""

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
    """A job's deadline and the rounds' answers to it; null if the job has no deadline."""

    deadline_answer: DeadlineStory | None


class JobDeadline(JobView):
    """Show the state of a job with a deadline, and all answers of rounds, newest first."""

    address = "jobs/<uuid:uid>/deadline"
    operation = "job_deadline"
    answer = DeadlineHistoryAnswer

    def show(self, uid: UUID) -> DeadlineHistoryAnswer:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            return DeadlineHistoryAnswer(
                read_deadline_story(job, at=read_clock(job.pool_id).pool_at)
            )
