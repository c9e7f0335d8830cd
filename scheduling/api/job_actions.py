"""REST view of actions on many jobs."""

from typing import ClassVar

from django.core.exceptions import PermissionDenied
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import SchedulingView, spec_of
from scheduling.engine.clock import read_clock
from scheduling.services.job_actions import JobActionRequest, JobActionRow, act_on_jobs
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.base import actor_of
from tenants.api.problems import Problem
from tenants.api.resources import described
from tenants.tokens import Scope


class JobActionsDone(s.Serializer[object]):
    """A row for each job, in the order of the request."""

    results = answer_serializer(JobActionRow)(many=True)


class JobActions(SchedulingView):
    address = "jobs/actions"
    scopes: ClassVar[dict[str, str]] = {"POST": Scope.JOBS_WRITE.value}

    @described("job_act", JobActionRequest, JobActionsDone)
    def post(self, request: Request) -> Response:
        """Act on up to 1,000 jobs, each separately, with a result for each. Repeating is harmless.

        A job that you may not see is refused like one that does not exist.
        """
        try:
            actor = actor_of(self.person)
            rows = act_on_jobs(
                actor=actor, access=self.access, raw=spec_of(request), now=read_clock
            )
        except PermissionDenied as denied:
            raise Problem("role", "Your role covers this in no tenant.") from denied
        return Response({"results": [plain(row) for row in rows]})
