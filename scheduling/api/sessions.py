"""REST views of interactive jobs."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import SchedulingView
from scheduling.engine.clock import wall_now
from scheduling.services.sessions import SessionLink, may_open, open_session
from tenants.answers import plain
from tenants.api.problems import Problem, fields_only
from tenants.api.resources import described
from tenants.tokens import Scope


class JobSession(SchedulingView):
    address = "jobs/<uuid:uid>/session"
    scopes: ClassVar[dict[str, str]] = {"POST": Scope.JOBS_WRITE.value}

    @described("job_session", None, SessionLink)
    def post(self, request: Request, uid: UUID) -> Response:
        """Return a link that opens an interactive job's session once, within a minute.

        While the job waits or starts, `url` is null.
        """
        job = self.job(uid)
        fields_only(request.data or {}, ())
        if not may_open(self.access, job):
            raise Problem("role", "Only the job's submitter may open its session.")
        return Response(plain(open_session(job=job, user=self.person, now=wall_now())))
