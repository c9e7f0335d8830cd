"""REST views that order a tenant's own jobs: hold, release, priority."""

from typing import Annotated, Any, ClassVar
from uuid import UUID

from django.core.exceptions import PermissionDenied
from msgspec import Meta
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import SchedulingView, root_of
from scheduling.api.jobs import WRITE
from scheduling.api.render import Money, NoMoney, jobs_json
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.requests.job_queue import PRIORITY_MAX
from scheduling.services.holds import Side, hold_job, release_hold, side_of
from scheduling.services.priorities import may_set_priority, set_priority
from tenants.api.base import actor_of
from tenants.api.operate import refusal, request_of
from tenants.api.problems import fields_only
from tenants.api.resources import described
from tenants.input.errors import InvalidInputError
from tenants.input.requests import Request
from tenants.permissions import Action
from tenants.scopes import tenant_scope


class PriorityRequest(Request, frozen=True, kw_only=True):
    """A job's priority among the waiting jobs of its tenant."""

    NOUN: ClassVar[str] = "a priority"

    priority: Annotated[
        int,
        Meta(
            ge=-PRIORITY_MAX,
            le=PRIORITY_MAX,
            description="Higher first, 0 by default. Only managers give priorities above 0.",
        ),
    ]


class QueueView(SchedulingView):
    """Base of views that change the place of one job."""

    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}
    money: Money = NoMoney()

    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(refusal(exc) if isinstance(exc, InvalidInputError) else exc)

    def side(self, job: Job, request: HttpRequest) -> Side:
        """Return the side on which the caller holds the job.

        Raises:
            PermissionDenied: it is neither the caller's job nor the caller's to manage.
            Problem: 403 if an operator's token lacks the scope `operate`.
        """
        fields_only(request.data or {}, ())
        side = side_of(self.access, job)
        if side is None:
            raise PermissionDenied
        if side is Side.OPERATOR:
            self.require_scope(Action.OPERATE, job.tenant_id)
        return side

    def shown(self, job: Job) -> Response:
        with tenant_scope(job.tenant_id):
            row = Job.objects.select_related("tenant", "pool", "profile").get(pk=job.pk)
            rows: list[dict[str, Any]] = jobs_json([row], self.money, root_of(self.request))
        return Response(rows[0])


class JobHold(QueueView):
    address = "jobs/<uuid:uid>/hold"

    @described("job_hold", None, schemas.JobRow)
    def post(self, request: HttpRequest, uid: UUID) -> Response:
        """Hold a waiting job: it is no demand until it is released. Repeating it changes nothing.

        Returns 409 if the job has GPUs or has ended.
        """
        job = self.job(uid)
        hold_job(job=job, actor=actor_of(self.person), side=self.side(job, request))
        return self.shown(job)


class JobRelease(QueueView):
    address = "jobs/<uuid:uid>/release"

    @described("job_release", None, schemas.JobRow)
    def post(self, request: HttpRequest, uid: UUID) -> Response:
        """Release a held job: it arrives in the queue now. Repeating it changes nothing.

        Returns 409 if the job waits for another job, or an operator holds it.
        """
        job = self.job(uid)
        side = self.side(job, request)
        release_hold(job=job, actor=actor_of(self.person), side=side, now=read_clock(job.pool_id))
        return self.shown(job)


class JobPriority(QueueView):
    address = "jobs/<uuid:uid>/priority"

    @described("job_priority", PriorityRequest, schemas.JobRow)
    def post(self, request: HttpRequest, uid: UUID) -> Response:
        """Set the priority of a job among its tenant's jobs. Other tenants are not affected."""
        job = self.job(uid)
        if not may_set_priority(self.access, job):
            raise PermissionDenied
        asked = request_of(PriorityRequest, request.data)
        set_priority(
            job=job, actor=actor_of(self.person), access=self.access, priority=asked.priority
        )
        return self.shown(job)
