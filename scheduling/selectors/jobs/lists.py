"""Pages of jobs of several tenants, their current leases, and why a job waits."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from evenshare_core.domain.instants import to_us
from evenshare_core.domain.reasons import Reason
from evenshare_core.policies.shared.held_jobs import HELD
from scheduling.models import Job, Lease, Pool, Round
from scheduling.selectors.jobs.ended_jobs import find_ended
from scheduling.selectors.jobs.list_filters import JobListFilter
from scheduling.selectors.jobs.phases import STARTING, is_starting
from scheduling.selectors.jobs.round_reasons import read_reason
from scheduling.selectors.tenants.dashboard import node_names, term_length
from tenants.answers import Answer, Hidden, about, answer_of

# A list of at most this number of tenants is put together from their own lists.
TENANTS_JOINED = 20


def list_jobs(wanted: JobListFilter, *, limit: int) -> tuple[list[Job], bool]:
    """Return jobs, newest first, with tenant and pool, and whether there are more.

    Pages are found by key, never by an offset. At most five queries.
    """
    if not wanted.is_by_key and not _is_joined(wanted):
        page = list(_of_list(_wanted(wanted)).order_by(wanted.order)[: limit + 1])
        return page[:limit], len(page) > limit
    ids = _ids(wanted, limit + 1)
    return list(rows_of(ids[:limit])), len(ids) > limit


def rows_of(ids: Iterable[int]) -> tuple[Job, ...]:
    """Return the jobs of a list with tenant and pool, in the order of `ids`. A single query."""
    wanted = list(ids)
    rows = _of_list(Job.objects.all()).in_bulk(wanted)
    return tuple(rows[one] for one in wanted if one in rows)


def count_jobs(wanted: JobListFilter, *, most: int) -> int:
    """Return the number of jobs that match a filter, at most `most`. At most four queries."""
    return len(_ids(wanted, most))


def _ids(wanted: JobListFilter, limit: int) -> list[int]:
    if not wanted.is_by_key:
        return _first_ids(wanted, Q(), limit)
    # Jobs that are active are read first: a job that ends in between must not be missing.
    is_active = Q(state__in=Job.ACTIVE_STATES)
    active = [] if wanted.exit_code is not None else _first_ids(wanted, is_active, limit)
    ids = {*active, *find_ended(wanted, limit=limit)}
    return sorted(ids, reverse=not wanted.oldest_first)[:limit]


def _first_ids(wanted: JobListFilter, more: Q, limit: int) -> list[int]:
    if not _is_joined(wanted):
        rows = _wanted(wanted).filter(more).order_by(wanted.order).values_list("id", flat=True)
        return list(rows[:limit])
    # An index has the order of one tenant's jobs, not of several tenants together.
    own = (_wanted(replace(wanted, tenants=[one])) for one in wanted.tenants or ())
    first, *others = (
        jobs.filter(more).order_by(wanted.order).values_list("id", flat=True)[:limit]
        for jobs in own
    )
    return list(first.union(*others, all=True).order_by(wanted.order)[:limit])


def _is_joined(wanted: JobListFilter) -> bool:
    return wanted.tenants is not None and 1 < len(wanted.tenants) <= TENANTS_JOINED


def _of_list(jobs: QuerySet[Job]) -> QuerySet[Job]:
    return jobs.select_related("tenant", "pool", "profile", "submitted_by")


class QueuedRow(NamedTuple):
    """A job of a short list, with the columns that determine its place in its pool's queue."""

    job: int
    pool_id: int
    pool: str
    quarantine: str
    submitted_at: datetime

    @property
    def place(self) -> tuple[int, str, datetime]:
        """The arguments of `QueueOrder.key_of_row`."""
        return self.job, self.quarantine, self.submitted_at


def list_queued(wanted: JobListFilter, *, most: int) -> list[QueuedRow]:
    """Return the jobs that match a filter, at most `most` and unordered. A single query."""
    columns = ("id", "pool_id", "pool__name", "quarantine", "submitted_at")
    return [QueuedRow(*row) for row in _wanted(wanted).values_list(*columns)[:most]]


def pools_of(wanted: JobListFilter) -> list[tuple[int, str]]:
    """Return id and name of the pools with jobs that match a filter, by name. A single query."""
    has_some = Exists(_wanted(wanted).filter(pool=OuterRef("pk")))
    return list(Pool.objects.filter(has_some).order_by("name").values_list("pk", "name"))


def among_jobs(wanted: JobListFilter, pool_id: int) -> QuerySet[Job]:
    """Return the jobs of a pool that match a filter, with their job types."""
    return _wanted(wanted).filter(pool=pool_id).select_related("pool", "profile", "submitted_by")


def _wanted(wanted: JobListFilter) -> QuerySet[Job]:
    jobs = Job.objects.all()
    if wanted.tenants is not None:
        jobs = jobs.filter(tenant__in=list(wanted.tenants))
    if wanted.states:
        jobs = jobs.filter(state__in=list(wanted.states))
    if wanted.phases:
        jobs = jobs.filter(_in_phases(wanted.phases))
    if wanted.pool:
        jobs = jobs.filter(pool__name=wanted.pool)
    if wanted.text:
        jobs = jobs.filter(name__icontains=wanted.text)
    if wanted.tags:
        jobs = jobs.filter(tags__contains=list(wanted.tags))
    if wanted.folds_sweeps:
        jobs = jobs.exclude(holds__contains=[Job.Hold.SWEEP.value])
    bounds = {
        "submitted_by": wanted.submitter,
        "exit_code": wanted.exit_code,
        "submitted_at__gte": wanted.since,
        "submitted_at__lt": wanted.until,
        "id__gt" if wanted.oldest_first else "id__lt": wanted.before,
    }
    return jobs.filter(**{name: bound for name, bound in bounds.items() if bound is not None})


def _in_phases(wanted: Collection[str]) -> Q:
    """Return the condition for these phases; leases are read only if it needs `STARTING`."""
    states = [one for one in wanted if one != STARTING]
    if STARTING in wanted and Job.State.RUNNING in wanted:
        return Q(state__in=states)
    if STARTING in wanted:
        return Q(state__in=states) | is_starting()
    if Job.State.RUNNING in wanted:
        return Q(state__in=states) & ~is_starting()
    return Q(state__in=states)


class LeaseNow(Answer, frozen=True):
    """The current lease of a job."""

    COMPONENT = "LeaseRow"

    number: int
    state: Hidden[str]
    expires_at: datetime
    length_s: Annotated[float, about("Length of the current term.")]
    protected_until: Annotated[
        datetime | None, about("Protected from preemption until then; null: not protected.")
    ]
    nodes: tuple[str, ...]
    own: int
    borrowed: int
    price: Decimal


def leases_now(jobs: Iterable[Job]) -> dict[int, LeaseNow]:
    """Return the current lease of each job that has one, by job id. Two queries.

    A job that is being moved has two leases; the one that still holds GPUs is the current one.
    """
    ids = [job.pk for job in jobs if job.is_active and job.leases_held]
    if not ids:
        return {}
    leases = Lease.objects.filter(job__in=ids, state__in=Lease.LIVE_STATES)
    rows = list(leases.annotate(lasts=term_length()).order_by("number"))
    rows.sort(key=lambda row: row.state != Lease.State.WAITING)
    names = node_names(place[0] for row in rows for place in row.placement)
    return {
        row.job_id: answer_of(
            LeaseNow,
            row,
            length_s=row.lasts.total_seconds(),
            nodes=tuple(sorted(names.get(node, "?") for node, _ in row.placement)),
        )
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class JobWait:
    """Why a job waits after a round: the reason's code and the job's numbers."""

    code: str
    round: int | None = None
    at: datetime | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)


def read_job_wait(job: Job) -> JobWait:
    """Return why a waiting job waits, by the pool's last round. Two queries.

    The reason of a held job, and of a job whose round's bytes are gone, comes from its row. The
    code is empty if no round has considered the job.
    """
    if job.is_held:
        return JobWait(job.reason_code, numbers=held_numbers(job))
    last = Round.objects.filter(pool_id=job.pool_id).order_by("-number").first()
    if last is None:
        return JobWait("")
    wait = read_reason(last, job.pk)
    # The last round may have been before its release.
    if wait is not None and wait.reason not in HELD:
        return JobWait(wait.reason.value, last.number, last.at, wait.numbers)
    return JobWait(job.reason_code, job.reason_round or last.number, last.at)


def held_numbers(job: Job) -> dict[str, Any]:
    """Return the numbers of a held job's reason: its earliest start, if its tenant named one."""
    is_timed = job.reason_code == Reason.NOT_BEFORE and job.not_before is not None
    return {"until_us": to_us(job.not_before)} if is_timed and job.not_before else {}


def find_visible_job(uid: UUID, tenants: Collection[int] | None) -> Job | None:
    """Return a job of the given tenants with its related rows; `tenants` None means all tenants."""
    return next(iter(find_visible_jobs([uid], tenants)), None)


def find_visible_jobs(uids: Collection[UUID], tenants: Collection[int] | None) -> list[Job]:
    """Return the jobs of the given tenants, in the order of `uids`; like `find_visible_job`."""
    named = ("tenant", "pool", "profile", "submitted_by", "profiled_for")
    jobs = Job.objects.select_related(*named).filter(uid__in=uids)
    if tenants is not None:
        jobs = jobs.filter(tenant__in=list(tenants))
    by_uid = {job.uid: job for job in jobs}
    return [by_uid[uid] for uid in uids if uid in by_uid]
