"""What rounds answered to a job with a deadline, as the API tells it."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import SchedulingView
from scheduling.engine.clock import read_clock
from scheduling.selectors.deadlines.answers import (
    DeadlineStory,
    read_deadline_story,
)
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.scopes import tenant_scope


class DeadlineHistoryAnswer(s.Serializer[object]):
    """Null: the job has no deadline."""

    deadline_answer = answer_serializer(DeadlineStory)(allow_null=True)


class JobDeadline(SchedulingView):
    """What rounds answered to a job's deadline."""

    scopes: ClassVar[dict[str, str]] = {"GET": "jobs:read"}

    @extend_schema(operation_id="job_deadline", responses={200: DeadlineHistoryAnswer})
    def get(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Say how a job stands to its deadline, and all that rounds answered, newest first."""
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            story = read_deadline_story(job, at=read_clock(job.pool_id).pool_at)
        return Response({"deadline_answer": plain(story)})
