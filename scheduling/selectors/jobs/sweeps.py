"""Sweeps with the states of their jobs, and the jobs of one sweep."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.db.models import Count, F, Q

from scheduling.models import Job, Sweep
from scheduling.selectors.jobs.phases import PHASES, phases
from tenants.answers import Answer, Hidden, about, answer_of, one_of

State = Job.State
HELD = "held"
# The key under which a stored request has the names of its parameters in their order.
MATRIX_ORDER = "matrix_order"


class SweepCounts(Answer, frozen=True):
    """The numbers of a sweep's jobs by state; together all of its jobs."""

    held: Annotated[int, about("Waiting for their turn in the sweep, or for other jobs.")] = 0
    pending: Annotated[int, about("In the queue.")] = 0
    running: Annotated[int, about("Starting, running or stopping.")] = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def active(self) -> int:
        return self.held + self.pending + self.running

    @property
    def total(self) -> int:
        return self.active + self.succeeded + self.failed + self.cancelled

    @property
    def state(self) -> str:
        """Return the first state, in this order, that some job is in."""
        order = ("running", "pending", HELD, "failed", "cancelled")
        return next((name for name in order if getattr(self, name)), State.SUCCEEDED.value)


class SweepRow(Answer, frozen=True, kw_only=True):
    """A sweep with the states of its jobs. Times are pool time."""

    id: UUID
    name: str
    tenant: str
    pool: str
    state: Annotated[
        str,
        one_of("running", "pending", HELD, "failed", "cancelled", "succeeded"),
        about("The first of these that some job is in."),
    ]
    array: str
    matrix: dict[str, tuple[str, ...]]
    include: tuple[dict[str, str], ...]
    exclude: tuple[dict[str, str], ...]
    at_once: Annotated[int | None, about("Jobs that may run at once; null: all.")]
    jobs: int
    counts: SweepCounts
    submitted_at: datetime
    cancel_asked_at: datetime | None
    origin: Annotated[UUID | None, about("The sweep whose failed jobs it runs again.")]
    url: str


class SweepJobRow(Answer, frozen=True, kw_only=True):
    """A job of a sweep. Times are pool time."""

    id: UUID
    name: str
    sweep_index: Annotated[int, about("Its place in the sweep, from 0.")]
    parameters: dict[str, str]
    state: Annotated[str, one_of(*State.values)]
    phase: Annotated[str, one_of(*PHASES)]
    held: Annotated[bool, about("Whether it waits for its turn, or for other jobs.")]
    started_at: datetime | None
    ended_at: datetime | None
    waited_s: Annotated[
        float | None, about("From its turn to its start, in pool time; null: not started.")
    ]
    exit_code: int | None
    url: str
    reason_code: Hidden[str]


class SweepPlace(Answer, frozen=True):
    """A job's place in its sweep."""

    id: Annotated[UUID, about("The sweep.")]
    index: Annotated[int, about("From 0.")]
    parameters: dict[str, str]


def sweep_places(jobs: Iterable[Job]) -> dict[int, SweepPlace]:
    """Return the places of jobs in their sweeps, by job id. A single query, none without sweeps."""
    placed = [(job, job.sweep_id) for job in jobs if job.sweep_id is not None]
    if not placed:
        return {}
    sweeps = Sweep.objects.filter(pk__in={sweep for _, sweep in placed})
    uids = dict(sweeps.values_list("pk", "uid"))
    return {
        job.pk: SweepPlace(uids[sweep], job.sweep_index or 0, job.parameters or {})
        for job, sweep in placed
    }


def list_sweeps(
    tenants: Collection[int] | None, *, pool: str = "", before: int | None = None, limit: int
) -> list[Sweep]:
    """Return sweeps, newest first, with tenant, pool and origin; one more than `limit` if any.

    `tenants`: None for all. A single query.
    """
    sweeps = Sweep.objects.select_related("tenant", "pool", "origin").order_by("-pk")
    if tenants is not None:
        sweeps = sweeps.filter(tenant__in=list(tenants))
    if pool:
        sweeps = sweeps.filter(pool__name=pool)
    if before is not None:
        sweeps = sweeps.filter(pk__lt=before)
    return list(sweeps[: limit + 1])


def active_sweeps(tenant_id: int, *, pool: str = "", limit: int = 10) -> list[Sweep]:
    """Return a tenant's newest sweeps that have jobs to run. A single query."""
    jobs = Job.objects.filter(
        tenant=tenant_id, state__in=Job.ACTIVE_STATES, sweep__isnull=False
    ).values("sweep")
    sweeps = Sweep.objects.filter(tenant=tenant_id, pk__in=jobs)
    if pool:
        sweeps = sweeps.filter(pool__name=pool)
    return list(sweeps.select_related("tenant", "pool", "origin").order_by("-pk")[:limit])


def find_visible_sweep(uid: UUID, tenants: Collection[int] | None) -> Sweep | None:
    """Return a sweep of the given tenants, or None; `tenants` None means all. A single query."""
    sweeps = Sweep.objects.select_related("tenant", "pool", "origin", "submitted_by")
    if tenants is not None:
        sweeps = sweeps.filter(tenant__in=list(tenants))
    return sweeps.filter(uid=uid).first()


def stored_request(sweep: Sweep) -> dict[str, Any]:
    """Return the request that submitted a sweep, with its parameters in their order."""
    spec = dict(sweep.spec)
    # Older sweeps have no order.
    order = spec.pop(MATRIX_ORDER, None) or list(spec.get("matrix", {}))
    if order:
        spec["matrix"] = {name: spec["matrix"][name] for name in order}
    return spec


def count_states(sweeps: Iterable[int]) -> Mapping[int, SweepCounts]:
    """Return the states of the jobs of sweeps, by sweep. A single query, none without sweeps."""
    wanted = list(sweeps)
    if not wanted:
        return {}
    is_held = Q(state=State.PENDING) & ~Q(holds=[])
    rows = Job.objects.filter(sweep__in=wanted).order_by().values("sweep")
    counted: Iterable[Mapping[str, Any]] = rows.annotate(
        held=Count("pk", filter=is_held),
        pending=Count("pk", filter=Q(state=State.PENDING, holds=[])),
        running=Count("pk", filter=Q(state__in=(State.RUNNING, State.STOPPING))),
        **{
            one.value: Count("pk", filter=Q(state=one))
            for one in (State.SUCCEEDED, State.FAILED, State.CANCELLED)
        },
    )
    return {
        row["sweep"]: SweepCounts(**{name: row[name] for name in SweepCounts.__struct_fields__})
        for row in counted
    }


def sweep_rows(sweeps: Iterable[Sweep], root: str) -> list[SweepRow]:
    """Return sweeps as answers; `root` is the site's URL. A single query."""
    shown = list(sweeps)
    counts = count_states(one.pk for one in shown)
    return [_sweep_row(one, counts.get(one.pk, SweepCounts()), root) for one in shown]


def _sweep_row(sweep: Sweep, counts: SweepCounts, root: str) -> SweepRow:
    return answer_of(
        SweepRow,
        sweep,
        id=sweep.uid,
        tenant=sweep.tenant.slug,
        pool=sweep.pool.name,
        state=counts.state,
        array=sweep.spec.get("array", ""),
        matrix={name: tuple(row) for name, row in stored_request(sweep).get("matrix", {}).items()},
        include=tuple(sweep.spec.get("include", ())),
        exclude=tuple(sweep.spec.get("exclude", ())),
        jobs=counts.total,
        counts=counts,
        origin=None if sweep.origin is None else sweep.origin.uid,
        url=f"{root}/sweeps/{sweep.uid}/",
    )


def sweep_jobs(
    sweep: Sweep, root: str, *, after: int | None = None, limit: int, state: str = ""
) -> list[SweepJobRow]:
    """Return the jobs of a sweep by their places, one more than `limit` if any. Two queries.

    `after`: the place before the first one. `state`: a name in `SweepCounts`, or empty for all.
    """
    jobs = sweep.jobs.filter(tenant=sweep.tenant_id).order_by("sweep_index")
    if after is not None:
        jobs = jobs.filter(sweep_index__gt=after)
    if state == HELD:
        jobs = jobs.filter(state=State.PENDING).exclude(holds=[])
    elif state == State.PENDING:
        jobs = jobs.filter(state=State.PENDING, holds=[])
    elif state == State.RUNNING:
        jobs = jobs.filter(state__in=(State.RUNNING, State.STOPPING))
    elif state:
        jobs = jobs.filter(state=state)
    shown = list(jobs[: limit + 1])
    phase = phases(shown)
    return [_job_row(job, phase[job.pk], root) for job in shown]


def _job_row(job: Job, phase: str, root: str) -> SweepJobRow:
    waited_s = None
    if job.first_started_at is not None:
        turn = job.eligible_at or job.submitted_at
        waited_s = max(0.0, (job.first_started_at - turn).total_seconds())
    return answer_of(
        SweepJobRow,
        job,
        id=job.uid,
        parameters=job.parameters or {},
        phase=phase,
        held=job.state == State.PENDING and bool(job.holds),
        started_at=job.first_started_at,
        waited_s=waited_s,
        url=f"{root}/jobs/{job.uid}/",
    )


class NeedRow(Answer, frozen=True, kw_only=True):
    """A job that another one waits for, or has waited for."""

    id: UUID
    name: str
    condition: Annotated[str, one_of("after_ok", "after_any")]
    state: Annotated[str, one_of(*State.values)]
    is_met: bool
    is_broken: Annotated[bool, about("The waiting job was cancelled because of it.")]


def needs_of_job(job: Job, *, limit: int = 20) -> list[NeedRow]:
    """Return the jobs that a job needs, broken and unmet ones first. A single query."""
    met = Q(needs__state=State.SUCCEEDED) | Q(
        condition="after_any", needs__state__in=(State.FAILED, State.CANCELLED)
    )
    rows = job.dependencies.filter(job__tenant=job.tenant_id).alias(met=Count("pk", filter=met))
    ordered = rows.order_by(F("is_broken").desc(), "met", "pk").select_related("needs")
    return [
        NeedRow(
            id=row.needs.uid,
            name=row.needs.name,
            condition=row.condition,
            state=row.needs.state,
            is_met=row.needs.state == State.SUCCEEDED
            or (row.condition == "after_any" and not row.needs.is_active),
            is_broken=row.is_broken,
        )
        for row in ordered[:limit]
    ]
