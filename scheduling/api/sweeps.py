"""REST views of sweeps: submit, list, show, their jobs, cancel, run failed jobs again."""

from typing import Any, ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import (
    SchedulingView,
    body_tenant,
    idempotency_key,
    replay_header,
    root_of,
    spec_of,
)
from scheduling.api.specs import SPEC_PARSERS, read_spec
from scheduling.engine.clock import read_clock
from scheduling.models import Sweep
from scheduling.selectors.jobs.sweeps import (
    SweepJobRow,
    SweepRow,
    find_visible_sweep,
    list_sweeps,
    sweep_jobs,
    sweep_rows,
)
from scheduling.services.sweeps import cancel_sweep, resubmit_failed, submit_sweep
from tenants.answers import plain
from tenants.api.base import Who
from tenants.api.problems import Problem, bad_field, fields_only
from tenants.api.resources import PAGE, Listed, Page, Shown, described, page_of, query
from tenants.idempotency import Made
from tenants.input.errors import InvalidInputError
from tenants.permissions import Action
from tenants.scopes import tenant_scope, tenants_scope
from tenants.tokens import Scope

READ, WRITE = Scope.JOBS_READ.value, Scope.JOBS_WRITE.value
STATES = ("held", "pending", "running", "succeeded", "failed", "cancelled")
STATE = query("state", "Only jobs that `counts` has under this name.", enum=list(STATES))


class SweepView(SchedulingView):
    """Base of views that find a sweep of the caller's tenants."""

    def sweep(self, uid: UUID) -> Sweep:
        return self.visible(uid, find_visible_sweep)

    def shown(self, sweep: Sweep) -> dict[str, Any]:
        with tenant_scope(sweep.tenant_id):
            (row,) = sweep_rows([sweep], root_of(self.request))
        answer: dict[str, Any] = plain(row)
        return answer

    def made(self, made: Made[Sweep]) -> Response:
        """Return the answer for a new sweep, or for the one that a repeated key made."""
        place = self.request.build_absolute_uri("/api/v1/sweeps")
        headers = {
            "Location": f"{place}/{made.row.uid}",
            **replay_header(is_replay=made.is_replay),
        }
        return Response(self.shown(made.row), status=201, headers=headers)


class SweepList(Listed, SweepView):
    """List sweeps, newest first."""

    address = "sweeps"
    operation = "sweep_list"
    who = Who.ANYBODY_SIGNED_IN
    row = SweepRow
    about = "A page of sweeps."
    parameters = (schemas.POOL, schemas.TENANT, *PAGE)
    shows = ("Sweep.name", "Sweep.uid", "Sweep.spec")
    scopes: ClassVar[dict[str, str]] = {"GET": READ, "POST": WRITE}
    parser_classes = SPEC_PARSERS

    @described("sweep_submit", schemas.SweepSubmission, SweepRow, 201, *schemas.ONCE)
    def post(self, request: Request) -> Response:
        """Submit a job for each index of an array and each combination of a matrix, or none.

        The fields are those of a job, and `array`, `matrix` and `at_once`. A body of
        `application/yaml` is the same as JSON with only the field `yaml`.
        """
        key, read = idempotency_key(request), read_spec(spec_of(request))
        spec = read.values
        with read.located():
            tenant = self.submitting_tenant(body_tenant(spec))
            made = submit_sweep(tenant=tenant, user=self.person, spec=spec, now=read_clock, key=key)
        return self.made(made)

    def page(self) -> Page:
        tenants, before, limit = self.asked_tenants(), self.before("sweeps"), self.limit
        with tenants_scope(tenants):
            sweeps = list_sweeps(tenants, pool=self.param("pool"), before=before, limit=limit)
            rows = sweep_rows(sweeps[:limit], root_of(self.request))
        return Page(rows, [sweeps[limit - 1].pk] if len(sweeps) > limit else None)


class SweepShow(Shown, SweepView):
    """Show a sweep with the states of its jobs."""

    address = "sweeps/<uuid:sweep>"
    operation = "sweep_show"
    who = Who.TENANT
    answer = SweepRow
    shows = ("Sweep.name", "Sweep.spec")
    scopes: ClassVar[dict[str, str]] = {"GET": READ}

    def show(self, sweep: UUID) -> dict[str, Any]:
        return self.shown(self.sweep(sweep))


class SweepJobs(Listed, SweepView):
    """List the jobs of a sweep by their places, with their parameters."""

    address = "sweeps/<uuid:sweep>/jobs"
    operation = "sweep_jobs"
    who = Who.TENANT
    row = SweepJobRow
    about = "A page of a sweep's jobs."
    parameters = (STATE, *PAGE)
    shows = ("Job.name", "Job.parameters")
    scopes: ClassVar[dict[str, str]] = {"GET": READ}

    def page(self, sweep: UUID) -> Page:
        row, state = self.sweep(sweep), self.param("state")
        if state and state not in STATES:
            raise bad_field("state", "is not a state", f"States: {', '.join(STATES)}.")
        after = self.after("sweeps", row.uid, state)
        with tenant_scope(row.tenant_id):
            jobs = sweep_jobs(
                row,
                root_of(self.request),
                after=after[0] if after else None,
                limit=self.limit,
                state=state,
            )
        return page_of(jobs, self.limit, lambda job: [job.sweep_index])


class SweepCancel(SweepView):
    address = "sweeps/<uuid:sweep>/cancel"
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}

    @described("sweep_cancel", None, SweepRow)
    def post(self, request: Request, sweep: UUID) -> Response:
        """Cancel all jobs of a sweep that have not ended. Repeating it changes nothing."""
        row = self.sweep(sweep)
        self.require(Action.CANCEL, row.tenant_id)
        fields_only(request.data or {}, ())
        return Response(self.shown(cancel_sweep(sweep=row, now=read_clock(row.pool_id))))


class SweepResubmit(SweepView):
    address = "sweeps/<uuid:sweep>/resubmit"
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}

    @described("sweep_resubmit", None, SweepRow, 201, *schemas.ONCE)
    def post(self, request: Request, sweep: UUID) -> Response:
        """Submit the failed jobs of a sweep again, as a new sweep with the same limit."""
        key, row = idempotency_key(request), self.sweep(sweep)
        self.require(Action.SUBMIT, row.tenant_id)
        fields_only(request.data or {}, ())
        try:
            made = resubmit_failed(sweep=row, user=self.person, now=read_clock, key=key)
        except InvalidInputError as error:
            if error.is_conflict:
                raise Problem("conflict", f"{error}.") from error
            raise
        return self.made(made)
