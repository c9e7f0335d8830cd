"""REST views of jobs: submit, dry run, list, show, cancel, reasons, logs."""

from collections.abc import Sequence
from dataclasses import replace as replace_field
from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec.structs import replace
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.asked import pool_times
from scheduling.api.base import (
    JobView,
    SchedulingView,
    body_tenant,
    idempotency_key,
    replay_header,
    root_of,
    spec_of,
)
from scheduling.api.render import Money, NoMoney, job_json, jobs_json
from scheduling.api.specs import SPEC_PARSERS, read_spec
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.requests.job_filters import ME, NEWEST, JobQuery, read_job_query, refuse_active
from scheduling.requests.sweeps import is_sweep
from scheduling.selectors.deadlines.answers import DeadlineRow, read_standings
from scheduling.selectors.deadlines.plans import PlanRow, read_plan
from scheduling.selectors.jobs.list_filters import JobListFilter, list_filter
from scheduling.selectors.jobs.lists import list_jobs, read_job_wait
from scheduling.selectors.jobs.phases import PHASE_SYNONYMS, PHASES, STARTING, phase_named, phases
from scheduling.selectors.jobs.preemptions import (
    PreemptionRow,
    last_preemption,
    preemptions_for,
)
from scheduling.selectors.jobs.reasons import Numbers, given_up_text
from scheduling.selectors.jobs.sorted_jobs import SortMark, list_sorted
from scheduling.selectors.jobs.sweeps import NeedRow, needs_of_job
from scheduling.selectors.jobs.too_large import why_now
from scheduling.selectors.speeds.measurements import SpeedCompared, overclaims_of
from scheduling.selectors.visibility import read_visibility
from scheduling.services.dry_run import DryRun, dry_run_job
from scheduling.services.jobs import cancel_job
from scheduling.services.logs import WINDOW_BYTES, LogPage, log_page
from scheduling.services.submit import BULK_MAX, submit_job, submit_jobs
from tenants.answers import Answer, about, answer_of, answered_as, one_of, plain
from tenants.api.base import Who
from tenants.api.problems import Problem, bad_field, fields_only, not_there
from tenants.api.resources import PAGE, Listed, Page, described
from tenants.input.errors import FieldErrors
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope, tenants_scope
from tenants.selectors.people import person_id_named

READ, WRITE = "jobs:read", "jobs:write"


class SubmittingView(SchedulingView):
    """Base of views that create jobs of one tenant."""

    money: Money = NoMoney()

    def submitted(
        self, jobs: list[Job], specs: list[Any], *, is_replay: bool
    ) -> list[dict[str, Any]]:
        """Return the new jobs, or for a repeated key the current state of the first ones."""
        root = root_of(self.request)
        if is_replay:
            with tenant_scope(jobs[0].tenant_id):
                return jobs_json(jobs, self.money, root)
        pairs = zip(jobs, specs, strict=True)
        return [job_json(job, root, pool=spec["pool"]) for job, spec in pairs]


class JobList(Listed, SubmittingView):
    """List jobs, by default newest first."""

    address = "jobs"
    operation = "job_list"
    who = Who.ANYBODY_SIGNED_IN
    row = schemas.JobRow
    about = "A page of jobs."
    parameters = (
        *(schemas.STATE, schemas.PHASE, schemas.POOL, schemas.TENANT),
        *schemas.FILTERS,
        *PAGE,
    )
    shows = (
        *("Job.name", "Job.uid", "Job.comment", "Job.tags", "Job.progress"),
        "Profile.name",
        "UsageLine.amount",
    )
    scopes: ClassVar[dict[str, str]] = {"GET": READ, "POST": WRITE}
    parser_classes = SPEC_PARSERS

    @described("job_submit", schemas.JobSubmission, schemas.JobRow, 201, *schemas.ONCE)
    def post(self, request: Request) -> Response:
        """Submit a job. With an `Idempotency-Key`, repeating the request is harmless.

        A body of `application/yaml` is the same as JSON with only the field `yaml`.
        """
        key, read = idempotency_key(request), read_spec(spec_of(request))
        spec = read.values
        with read.located():
            if is_sweep(spec):
                raise Problem("is_sweep")
            tenant = self.submitting_tenant(body_tenant(spec))
            made = submit_job(tenant=tenant, user=self.person, spec=spec, now=read_clock, key=key)
        (shown,) = self.submitted([made.row], [spec], is_replay=made.is_replay)
        headers = {
            "Location": f"{request.path}/{made.row.uid}",
            **replay_header(is_replay=made.is_replay),
        }
        return Response(shown, status=201, headers=headers)

    def page(self) -> Page:
        state, phase = _phase_asked(self.request, "state"), _phase_asked(self.request, "phase")
        # A starting job has the state `running`; `starting` exists only as a phase.
        phases_asked = [one for one in (phase, state if state == STARTING else "") if one]
        errors = FieldErrors()
        query = read_job_query(self.request.query_params, errors)
        listing = list_filter(
            query,
            self.asked_tenants(),
            states=[state] if state and state != STARTING else (),
            phases=phases_asked,
            pool=self.param("pool"),
            submitter=self._submitter(query.submitter),
        )
        refuse_active(query, errors, has_ended=bool(listing.ended_states))
        errors.raise_any()
        route = "jobs" if query.sort == NEWEST else f"jobs-{query.sort}"
        with tenants_scope(listing.tenants):
            jobs, following = self._jobs(listing, query, route)
            rows = jobs_json(jobs, self.money, root_of(self.request))
        return Page(rows, following)

    def _jobs(
        self, listing: JobListFilter, query: JobQuery, route: str
    ) -> tuple[list[Job], Sequence[int] | None]:
        """Return the jobs of the page, and the key of the next one."""
        limit = self.limit
        if query.is_by_value:
            key = self.after(route, parts=3)
            page = list_sorted(
                listing, query.sort, after=SortMark(*key) if key else None, limit=limit
            )
            return list(page.jobs), page.next
        jobs, more = list_jobs(replace_field(listing, before=self.before(route)), limit=limit)
        return jobs, [jobs[-1].pk] if more else None

    def _submitter(self, name: str) -> int | None:
        """Return the id of the person with this login name; 0 if no person has it."""
        if not name or name == ME:
            return self.person.pk if name else None
        with site_scope():
            return person_id_named(name)


def _phase_asked(request: Request, name: str) -> str:
    """Return the phase that a parameter names (synonyms and any letter case), or "" without it.

    Raises:
        Problem: the parameter names no phase.
    """
    text = request.query_params.get(name, "")
    phase = phase_named(text)
    if text and phase is None:
        raise bad_field(
            name, f"is not a {name}", f"States: {', '.join((*PHASES, *PHASE_SYNONYMS))}."
        )
    return phase or ""


class JobBulk(SubmittingView):
    address = "jobs/bulk"
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}

    @described("job_submit_bulk", schemas.Bulk, schemas.BulkMade, 201, *schemas.ONCE)
    def post(self, request: Request) -> Response:
        """Submit up to 1,000 jobs of one tenant, or none if any is invalid; lists all errors."""
        key = idempotency_key(request)
        specs = fields_only(request.data, ("jobs",)).get("jobs")
        if not isinstance(specs, list) or not 1 <= len(specs) <= BULK_MAX:
            raise bad_field("jobs", f"must be a list of 1 to {BULK_MAX} specifications")
        names = [body_tenant(spec) for spec in specs]
        if any(name != names[0] for name in names):
            place = next(i for i, name in enumerate(names) if name != names[0])
            raise bad_field(
                f"jobs[{place}].tenant", "differs", "All jobs of a request must be of one tenant."
            )
        tenant = self.submitting_tenant(names[0])
        made = submit_jobs(tenant=tenant, user=self.person, specs=specs, now=read_clock, key=key)
        rows = self.submitted(made.row, specs, is_replay=made.is_replay)
        return Response(
            {"results": rows}, status=201, headers=replay_header(is_replay=made.is_replay)
        )


class JobDryRun(SchedulingView):
    address = "jobs/dry-run"
    parser_classes = SPEC_PARSERS
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}
    money: Money = NoMoney()

    @described("job_dry_run", schemas.JobSubmission, DryRun)
    def post(self, request: Request) -> Response:
        """Return whether a specification could run. Nothing is stored and nothing is promised."""
        read = read_spec(spec_of(request))
        with read.located():
            tenant = self.submitting_tenant(body_tenant(read.values))
            answer = dry_run_job(tenant=tenant, user=self.person, spec=read.values, now=read_clock)
        with tenant_scope(tenant.pk):
            currency = self.money.currency(answer.book)
        return Response(plain(replace(answer, currency=currency)))


class JobShow(JobView):
    """Show a job with its present lease, its progress and its charge so far."""

    address = "jobs/<uuid:uid>"
    operation = "job_show"
    answer = schemas.JobRow
    shows = ("Job.name", "Job.comment", "Job.tags", "Job.progress", "Profile.name")
    money: Money = NoMoney()

    def show(self, uid: UUID) -> dict[str, Any]:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            return jobs_json([job], self.money, root_of(self.request))[0]


class JobCancel(SchedulingView):
    address = "jobs/<uuid:uid>/cancel"
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}
    money: Money = NoMoney()

    @described("job_cancel", None, schemas.JobRow)
    def post(self, request: Request, uid: UUID) -> Response:
        """Cancel a job. Repeating it, or cancelling a job that has ended, changes nothing."""
        job = self.job(uid)
        self.require(Action.CANCEL, job.tenant_id)
        fields_only(request.data or {}, ())
        job = cancel_job(job=job, now=read_clock(job.pool_id))
        with tenant_scope(job.tenant_id):
            return Response(jobs_json([job], self.money, root_of(request))[0])


class JobReason(Answer, frozen=True, kw_only=True):
    """The reason for a job's state in a given round."""

    state: Annotated[str, one_of(*Job.State.values)]
    phase: Annotated[str, one_of(*PHASES)]
    reason_code: str = ""
    words: str = "Not considered by a round yet."
    next_step: str = "The next round decides."
    numbers: Numbers = {}
    round: int | None = None
    as_of: datetime | None = None
    overclaims: Annotated[
        tuple[SpeedCompared, ...],
        about("GPU types on which its job type was declared faster than measured."),
    ]
    deadline_answer: Annotated[
        DeadlineRow | None, about("null: no deadline."), answered_as(DeadlineRow)
    ]
    plan: Annotated[PlanRow | None, about("null: no plan applies now.")]
    preempted: Annotated[
        PreemptionRow | None, about("Its last preemption before the lease expired.")
    ]
    made_way: Annotated[
        tuple[PreemptionRow, ...],
        about("Leases that were preempted for this job, oldest first."),
    ]
    needs: Annotated[tuple[NeedRow, ...], about("Jobs that it waits for, unmet first; at most 20.")]


class JobWhy(JobView):
    """Explain why a job waits, with the numbers of the round that decided, and a next step."""

    address = "jobs/<uuid:uid>/why"
    operation = "job_why"
    answer = JobReason

    def show(self, uid: UUID) -> JobReason:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            visibility = read_visibility(job.pool_id, self.access)
            last = last_preemption(job, visibility)
            made_way = preemptions_for(job, visibility)
            needs = needs_of_job(job)
            plan = read_plan(job)
            overclaims = overclaims_of(job.profile)
            deadlines = read_standings([job], pool_times([job]))
            phase = phases([job])[job.pk]
        row = JobReason(
            state=job.state,
            phase=phase,
            overclaims=tuple(answer_of(SpeedCompared, one) for one in overclaims),
            deadline_answer=deadlines.get(job.pk),
            plan=plan,
            preempted=last,
            made_way=tuple(made_way),
            needs=tuple(needs),
        )
        if job.state != Job.State.PENDING:
            return _settled(job, row)
        with tenant_scope(job.tenant_id):
            wait = read_job_wait(job)
            reason = why_now(job, wait.code, wait.numbers) if wait.code else None
        row = replace(
            row, reason_code=wait.code, numbers=wait.numbers, round=wait.round, as_of=wait.at
        )
        if reason is not None:
            row = replace(row, words=reason.sentence or reason.text, next_step=reason.next_step)
        return row


def _settled(job: Job, row: JobReason) -> JobReason:
    texts = {
        STARTING: "It has GPUs, but its program has not started yet.",
        Job.State.RUNNING: "It holds its GPUs.",
        Job.State.STOPPING: "Its GPUs are being taken back.",
        Job.State.SUCCEEDED: "It has finished.",
        Job.State.FAILED: "It has failed.",
        Job.State.CANCELLED: "It was cancelled.",
    }
    broken = next((need for need in row.needs if need.is_broken), None)
    if broken is not None:
        what = "failed" if broken.state == Job.State.FAILED else "was cancelled"
        texts[Job.State.CANCELLED] = f"It was cancelled, because {broken.name} {what}."
    if job.is_given_up:
        texts[Job.State.FAILED] = given_up_text(job.losses)
    return replace(
        row,
        words=texts[row.phase],
        next_step="Check its log." if job.state == Job.State.FAILED else "",
        numbers={} if job.exit_code is None else {"exit_code": job.exit_code},
        as_of=job.ended_at,
    )


class JobLogs(JobView):
    """Read a window of a log as inert text; a negative `offset` counts from the end."""

    address = "jobs/<uuid:uid>/logs"
    operation = "job_logs"
    answer = LogPage
    parameters = schemas.LOG_QUERY
    shows = ("Log.text",)

    def show(self, uid: UUID) -> LogPage:
        job = self.job(uid)
        lease = self.number("lease", least=1, most=2**31 - 1)
        offset = self.number("offset", least=-(2**62), most=2**62) or 0
        limit = self.number("limit", least=1, most=WINDOW_BYTES) or WINDOW_BYTES
        with tenant_scope(job.tenant_id):
            page = log_page(job, lease=lease, offset=offset, limit=limit)
        if page is None:
            raise not_there()
        return page
