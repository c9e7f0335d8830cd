"""Pages of a tenant's jobs, and the history of one job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q

from evenshare_core.domain.reasons import Reason
from evenshare_core.policies.shared.held_jobs import HELD
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseTerm, Pool, Round
from scheduling.requests.job_filters import JobQuery
from scheduling.selectors.deadlines.answers import DeadlineStory, read_standings
from scheduling.selectors.jobs import queue_order
from scheduling.selectors.jobs.list_filters import JobListFilter, list_filter
from scheduling.selectors.jobs.lists import (
    among_jobs,
    count_jobs,
    list_jobs,
    list_queued,
    pools_of,
)
from scheduling.selectors.jobs.phases import STARTING, is_starting, phase_of
from scheduling.selectors.jobs.queue_order import (
    QueueMark,
    QueueOrder,
    QueuePosition,
    is_queued,
    list_queue,
    order_after,
    read_queue_orders,
)
from scheduling.selectors.jobs.reasons import ReasonText, why
from scheduling.selectors.jobs.round_reasons import read_reason
from scheduling.selectors.jobs.sorted_jobs import SortMark, list_sorted
from scheduling.selectors.jobs.too_large import Sizes, read_sizes, why_now, why_of_job
from scheduling.selectors.tenants.dashboard import HOLDING, node_names

PAGE = 50
COUNTED = 1000
# A job that runs for months has thousands of terms; its page shows only the last ones.
EVENTS, LEASES = 600, 200
# The number of rounds whose stored decision is read to explain past waits.
LOOKED_UP = 4

# The phases of each value of the filter. `holding` is used by links: all jobs that hold GPUs.
STATES: dict[str, tuple[str, ...]] = {
    "pending": (Job.State.PENDING,),
    STARTING: (STARTING,),
    "running": (Job.State.RUNNING, Job.State.STOPPING),
    "stopping": (Job.State.STOPPING,),
    "holding": (STARTING, Job.State.RUNNING, Job.State.STOPPING),
    "succeeded": (Job.State.SUCCEEDED,),
    "failed": (Job.State.FAILED,),
    "cancelled": (Job.State.CANCELLED,),
}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The filter of a job list; empty values do not filter.

    A page starts beyond the key `before`. A page of queued jobs, in queue order, starts after the
    mark `after`; a page of ended jobs by a value after the mark `beyond`. `submitter`: the id of
    the person in `query`.
    """

    state: str = ""
    pool: str = ""
    before: int | None = None
    after: QueueMark | None = None
    beyond: SortMark | None = None
    query: JobQuery = field(default_factory=JobQuery)
    submitter: int | None = None

    @property
    def is_narrowed(self) -> bool:
        """Return whether the list is filtered, except by a pool."""
        return bool(self.state) or any(self.query.kept.values())

    @property
    def is_later(self) -> bool:
        """Return whether the page is not the first one."""
        return not (self.before is None and self.after is None and self.beyond is None)


@dataclass(frozen=True, slots=True)
class JobListRow:
    """A job of a list. `own` and `borrowed` are None if it holds no GPUs.

    `phase`: its state, or `starting` (`scheduling.selectors.jobs.phases`). `position`: its place in
    the queue of its pool, or None if it has no place.
    """

    job: Job
    phase: str
    reason: ReasonText | None
    own: int | None
    borrowed: int | None
    position: QueuePosition | None


@dataclass(frozen=True, slots=True)
class JobListPage:
    """Rows, and the start of the next page: `next_before`, `next_after` or `next_beyond`.

    Rows are newest first. A page of queued jobs is sorted by pool name, then by the order in
    `queues`. On the last page all three are None.
    """

    rows: tuple[JobListRow, ...]
    next_before: int | None
    next_after: QueueMark | None = None
    queues: Mapping[str, QueueOrder] = field(default_factory=dict)
    next_beyond: SortMark | None = None

    def standings(self, at: Mapping[str, datetime]) -> dict[int, DeadlineStory]:
        """Return the progress of the page's jobs towards their deadlines, by job id.

        `at`: pool time by pool name. A single query, or none if no job has a deadline.
        """
        dated = [row.job for row in self.rows if row.job.deadline_at is not None]
        return read_standings(dated, {job.pool_id: at[job.pool.name] for job in dated})


def jobs_page(tenant_id: int, wanted: JobFilter, *, limit: int = PAGE) -> JobListPage:
    """Return a page of a tenant's jobs, by default newest first, or its queued jobs in queue order.

    Two queries, and one more if a job is too large. For each pool with a queued job on the page,
    `read_queue_order` adds its own queries.
    """
    if wanted.state == "pending":
        return _queued_page(tenant_id, wanted, limit)
    if wanted.query.is_by_value:
        return _sorted_page(tenant_id, wanted, limit)
    shown, more = list_jobs(_listing(tenant_id, wanted), limit=limit)
    live = Lease.objects.filter(
        job__in=[job.pk for job in shown if job.is_active], state__in=Lease.LIVE_STATES
    )
    holds: dict[int, tuple[int, int]] = {}
    leases: dict[int, list[str]] = {}
    for job_id, state, own, borrowed in live.values_list("job_id", "state", "own", "borrowed"):
        leases.setdefault(job_id, []).append(state)
        if state in HOLDING:
            holds[job_id] = own, borrowed
    orders, sizes = read_queue_orders(shown), _sizes(shown)
    return JobListPage(
        tuple(
            _row(job, holds.get(job.pk), orders.get(job.pool_id), sizes, leases.get(job.pk, ()))
            for job in shown
        ),
        shown[-1].pk if more else None,
    )


def _sorted_page(tenant_id: int, wanted: JobFilter, limit: int) -> JobListPage:
    """Return a page of ended jobs by a value."""
    page = list_sorted(
        _listing(tenant_id, wanted), wanted.query.sort, after=wanted.beyond, limit=limit
    )
    return JobListPage(
        tuple(_row(job, None, None, {}) for job in page.jobs), None, next_beyond=page.next
    )


def _queued_page(tenant_id: int, wanted: JobFilter, limit: int) -> JobListPage:
    """Return a page of the queued jobs, by pool and queue order.

    Queued jobs are sorted in memory; `_long_page` reads long lists by an index. A later page uses
    the order of the round in its mark, as the previous page did.
    """
    after = wanted.after
    queued = list_queued(_listing(tenant_id, wanted), most=queue_order.FIRST_JOBS + 1)
    if len(queued) > queue_order.FIRST_JOBS:
        return _long_page(tenant_id, wanted, limit)
    orders = {
        row.pool_id: order_after(row.pool_id, row.pool, after)
        for row in {row.pool_id: row for row in queued}.values()
    }
    marks = {
        row.job: QueueMark(row.pool, order.round or 0, order.key_of_row(*row.place))
        for row in queued
        for order in (orders[row.pool_id],)
    }
    ids = sorted(
        (job for job, mark in marks.items() if after is None or mark > after),
        key=marks.__getitem__,
    )
    page = ids[:limit]
    rows = Job.objects.select_related("pool", "profile", "submitted_by").in_bulk(page)
    shown = [rows[job] for job in page if job in rows]
    sizes = _sizes(shown)
    return JobListPage(
        tuple(_row(job, None, orders.get(job.pool_id), sizes) for job in shown),
        None,
        marks[page[-1]] if len(ids) > limit else None,
        {row.pool: orders[row.pool_id] for row in queued},
    )


def _long_page(tenant_id: int, wanted: JobFilter, limit: int) -> JobListPage:
    """Return a page of a long list pool by pool, reading only as many jobs as the page needs."""
    after = wanted.after
    listing = _listing(tenant_id, wanted)
    orders: dict[int, QueueOrder] = {}
    queues: dict[str, QueueOrder] = {}
    shown: list[Job] = []
    more = False
    for pool_id, pool in pools_of(listing):
        if after is not None and pool < after.pool:
            continue
        if len(shown) == limit:
            more = True
            break
        order = orders[pool_id] = queues[pool] = order_after(pool_id, pool, after)
        key = after.key if after is not None and after.pool == pool else None
        among = among_jobs(listing, pool_id)
        page, more = list_queue(order, after=key, limit=limit - len(shown), among=among)
        shown += page
        if more:
            break
    next_after = None
    if more:
        last = orders[shown[-1].pool_id]
        next_after = QueueMark(shown[-1].pool.name, last.round or 0, last.key_of(shown[-1]))
    sizes = _sizes(shown)
    rows = tuple(_row(job, None, orders[job.pool_id], sizes) for job in shown)
    return JobListPage(rows, None, next_after, queues)


def count_matches(tenant_id: int, wanted: JobFilter) -> int:
    """Return the number of a tenant's jobs that match a filter, on all pages, at most `COUNTED`."""
    return count_jobs(_listing(tenant_id, replace(wanted, before=None)), most=COUNTED)


def _listing(tenant_id: int, wanted: JobFilter) -> JobListFilter:
    return list_filter(
        wanted.query,
        [tenant_id],
        phases=STATES.get(wanted.state, ()),
        pool=wanted.pool,
        before=wanted.before,
        submitter=wanted.submitter,
        folds_sweeps=not wanted.is_narrowed,
    )


def _sizes(jobs: Iterable[Job]) -> Mapping[int, Sizes]:
    """Return the sizes of pools in which one of these jobs is too large. At most one query."""
    return read_sizes(job.pool_id for job in jobs if job.reason_code == Reason.TOO_LARGE)


def _row(
    job: Job,
    hold: tuple[int, int] | None,
    order: QueueOrder | None,
    sizes: Mapping[int, Sizes],
    leases: Sequence[str] = (),
) -> JobListRow:
    waits = job.state == Job.State.PENDING and job.reason_code
    return JobListRow(
        job=job,
        phase=phase_of(job.state, leases),
        reason=why_of_job(job, job.reason_code, sizes.get(job.pool_id, {})) if waits else None,
        own=hold[0] if hold else None,
        borrowed=hold[1] if hold else None,
        position=order.positions.get(job.pk) if order else None,
    )


@dataclass(frozen=True, slots=True)
class ActiveCounts:
    """The numbers of a tenant's waiting, starting and running jobs, over all pools.

    Stopping jobs count as running.
    """

    waiting: int
    starting: int
    running: int


def active_counts(tenant_id: int) -> ActiveCounts:
    """Return the numbers of a tenant's waiting, starting and running jobs."""
    counts = Job.objects.filter(tenant_id=tenant_id, state__in=Job.ACTIVE_STATES).aggregate(
        waiting=Count("id", filter=Q(state=Job.State.PENDING)),
        starting=Count("id", filter=is_starting()),
        held=Count("id", filter=~Q(state=Job.State.PENDING)),
    )
    starting = counts["starting"]
    return ActiveCounts(counts["waiting"], starting, counts["held"] - starting)


def pool_names(ids: Iterable[int]) -> list[str]:
    pools = Pool.objects.filter(id__in=list(ids)).order_by("name")
    return list(pools.values_list("name", flat=True))


def find_tenant_job(tenant_id: int, uid: UUID) -> Job | None:
    """Return a tenant's job with its pool and job type, or None. A single query."""
    rows = Job.objects.filter(tenant_id=tenant_id, uid=uid)
    return rows.select_related("pool", "profile").first()


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A lease of a job with its terms; `places` are pairs of a node name and a number of GPUs.

    `has_waited`: the lease was granted GPUs that were still being released, and launched later. It
    is False again once the launch intent of an old lease is deleted.
    """

    lease: Lease
    places: tuple[tuple[str, int], ...]
    terms: tuple[LeaseTerm, ...]
    has_waited: bool = False


class CurrentWait(NamedTuple):
    """The reason in the last round for which a job waits; `jobs` jobs wait for the same reason."""

    round: int
    reason: ReasonText
    jobs: int


@dataclass(frozen=True, slots=True)
class JobStory:
    """The history of one job, oldest first.

    `rounds`: pool time, wall time, and scale of the pool's clock, at the rounds of its events.
    `reasons`: why it waited before a lease, by lease number, for the last `LOOKED_UP` leases.
    `waits_for`: why it is queued now, or None. `cut`: older leases or events were left out.
    """

    job: Job
    holds: tuple[LeaseView, ...]
    events: tuple[LeaseEvent, ...]
    rounds: tuple[tuple[datetime, datetime, int], ...]
    reasons: dict[int, ReasonText]
    waits_for: CurrentWait | None
    cut: bool


def job_story(job: Job) -> JobStory:
    """Return a job's leases, terms, events and reasons."""
    # If the GPUs of a lease are free, it is launched in the round that grants it.
    later = Intent.objects.filter(
        lease=OuterRef("pk"), kind=Intent.Kind.LAUNCH, at__gt=OuterRef("granted_at")
    )
    rows = job.leases.select_related("gpu_type", "idle_reading")
    rows = rows.annotate(launched_later=Exists(later))
    leases = list(rows.order_by("-number")[:LEASES])[::-1]
    events = list(job.events.order_by("-id")[:EVENTS])[::-1]
    names = node_names(place[0] for lease in leases for place in lease.placement)
    terms: dict[int, list[LeaseTerm]] = {}
    for row in LeaseTerm.objects.filter(lease__in=leases).order_by("lease_id", "number"):
        terms.setdefault(row.lease_id, []).append(row)
    numbers = {event.round for event in events if event.round is not None}
    anchors = Round.objects.filter(pool_id=job.pool_id, number__in=numbers).order_by("at")
    return JobStory(
        job=job,
        holds=tuple(
            LeaseView(
                lease,
                tuple(sorted((names.get(node, "?"), gpus) for node, gpus in lease.placement)),
                tuple(terms.get(lease.pk, ())),
                lease.launched_later,
            )
            for lease in leases
        ),
        events=tuple(events),
        rounds=tuple(anchors.values_list("at", "wall_at", "scale")),
        reasons=_past_reasons(job, leases),
        waits_for=_waits_for(job),
        cut=len(leases) == LEASES or len(events) == EVENTS,
    )


def _past_reasons(job: Job, leases: Sequence[Lease]) -> dict[int, ReasonText]:
    """Return why the job waited in the round before the grant of each of its last leases."""
    asked = {lease.granted_round - 1: lease for lease in leases[-LOOKED_UP:]}
    reasons: dict[int, ReasonText] = {}
    for round_ in Round.objects.filter(pool_id=job.pool_id, number__in=asked):
        past = read_reason(round_, job.pk)
        if past is not None:
            reasons[asked[round_.number].number] = why(past.reason, past.numbers)
    return reasons


def _waits_for(job: Job) -> CurrentWait | None:
    """Return why the job is queued, by the last round; None if not queued or unknown."""
    if not is_queued(job):
        return None
    last = Round.objects.filter(pool_id=job.pool_id).order_by("-number").first()
    wait = read_reason(last, job.pk) if last else None
    # The last round may have been before its release.
    if last is None or wait is None or wait.reason in HELD:
        return None
    return CurrentWait(last.number, why_now(job, wait.reason, wait.numbers), wait.jobs)
