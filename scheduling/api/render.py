"""Jobs, pools and rounds as JSON: plain dictionaries, money as text, times in UTC."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Protocol
from uuid import UUID

from scheduling.api.asked import asked_json, deadline_left_s, pool_times
from scheduling.engine.clock import read_clocks
from scheduling.models import Job
from scheduling.selectors.deadlines.answers import DeadlineRow, read_standings
from scheduling.selectors.jobs.estimates import EstimateView, read_estimates
from scheduling.selectors.jobs.lists import LeaseNow, leases_now
from scheduling.selectors.jobs.phases import PHASES, phase_of
from scheduling.selectors.jobs.queue_order import is_queued, read_queue_orders
from scheduling.selectors.jobs.start_estimates import StartView, read_starts
from scheduling.selectors.jobs.stop_forecasts import StopView, read_stop_forecasts
from scheduling.selectors.jobs.sweeps import SweepPlace, sweep_places
from scheduling.selectors.rounds.promised_starts import read_latest_starts
from tenants.answers import Answer, about, answer_of, answered_as, one_of, plain

# The fields of `JobRow` that are null if the caller does not know them.
KNOWN = (
    *("starts_by", "queue", "estimate", "stop_estimate", "lease", "deadline_answer"),
    "sweep",
)


class Money(Protocol):
    """The functions of billing that these views need; this layer may not import billing."""

    def charges(self, jobs: Iterable[int]) -> Mapping[int, Decimal]:
        """Return the charges of jobs so far, by job id; jobs without a charge are left out."""

    def currency(self, book: str) -> str:
        """Return the name of a book's credits."""


class NoMoney:
    """The default without billing."""

    def charges(self, jobs: Iterable[int]) -> Mapping[int, Decimal]:
        """Return 0 for all jobs."""
        return dict.fromkeys(jobs, Decimal(0))

    def currency(self, book: str) -> str:
        """Return the book's own name."""
        return book


class QueuePlace(Answer, frozen=True):
    """The place of a queued job in the order of a round, as in the pool's queue."""

    round: int | None
    position: Annotated[int | None, about("From 1; null: no position.")]
    tenant_position: Annotated[int | None, about("Among your tenant's jobs.")]
    order: Annotated[str, about("Order of the queue, or why there are no positions.")]
    start: Annotated[StartView | None, about("null: no estimate yet.")]


class JobRow(Answer, frozen=True, kw_only=True):
    """A job. Times are pool time."""

    id: UUID
    name: str
    tenant: str
    pool: str
    state: Annotated[str, one_of(*Job.State.values)]
    phase: Annotated[
        str,
        one_of(*PHASES),
        about("Like `state`, but `starting` for a running job whose program has not started yet."),
    ]
    gpus: int
    gpu_types: tuple[str, ...]
    profile: str | None
    submitted_at: datetime
    eligible_at: Annotated[
        datetime | None, about("When its last hold ended; null: it was never held.")
    ]
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    reason_code: str
    holds: Annotated[tuple[str, ...], about("Why it may not start yet; empty if it may.")]
    starts_by: Annotated[
        datetime | None, about("Promised latest start, in pool time; null: no promise.")
    ]
    queue: Annotated[QueuePlace | None, about("null: not queued, or not in a round yet.")]
    estimate: Annotated[EstimateView | None, about("null: unknown, ended or just submitted.")]
    stop_estimate: Annotated[
        StopView | None,
        about("null: no stopping metric, ended, or no report yet."),
    ]
    losses: Annotated[int, about("Consecutive losses of its process soon after its start.")]
    profiling_s: Annotated[
        int, about("Length of a profiling run, in seconds on GPUs; 0: not a profiling run.")
    ]
    backoff_until: datetime | None
    lease: LeaseNow | None
    progress: dict[str, Any] | None
    charge: Decimal
    url: str
    deadline_answer: Annotated[
        DeadlineRow | None,
        about("null: no deadline, or just submitted."),
        answered_as(DeadlineRow),
    ]
    deadline_left_s: Annotated[
        int | None, about("Pool time; negative: past. null: no deadline, or ended.")
    ]
    sweep: Annotated[SweepPlace | None, about("null: not of a sweep.")]


def jobs_json(jobs: list[Job], money: Money, root: str) -> list[dict[str, Any]]:
    """Return jobs with their present leases and charges; `root` is the site's URL.

    Jobs that have ended have no estimates.
    """
    active = [job for job in jobs if job.is_active]
    leases, charges = leases_now(jobs), money.charges([job.pk for job in jobs if job.leases_held])
    queues, now = queue_places(jobs), pool_times(jobs)
    estimates, stops = read_estimates(active), read_stop_forecasts(active)
    answers, promised = read_standings(jobs, now), read_latest_starts(jobs)
    sweeps = sweep_places(jobs)
    return [
        job_json(
            job,
            root,
            at=now.get(job.pool_id),
            lease=leases.get(job.pk),
            charge=charges.get(job.pk) or Decimal(0),
            starts_by=promised.get(job.pk),
            queue=queues.get(job.pk),
            estimate=estimates.get(job.pk),
            stop_estimate=stops.get(job.pk),
            deadline_answer=answers.get(job.pk),
            sweep=sweeps.get(job.pk),
        )
        for job in jobs
    ]


def job_json(
    job: Job, root: str, *, pool: str = "", at: datetime | None = None, **known: Any
) -> dict[str, Any]:
    """Return a job as JSON; `known` contains further fields of `JobRow`.

    `pool`: the pool's name, which saves a query. `at`: present pool time; by default the job's
    submission.
    """
    lease = known.get("lease")
    row = answer_of(
        JobRow,
        job,
        id=job.uid,
        tenant=job.tenant.slug,
        pool=pool or job.pool.name,
        phase=phase_of(job.state, [lease.state] if lease else ()),
        gpu_types=tuple(job.gpu_types),
        holds=tuple(job.holds),
        profile=None if job.profile is None else job.profile.name,
        started_at=job.first_started_at,
        url=f"{root}/jobs/{job.uid}/",
        deadline_left_s=deadline_left_s(job, at or job.submitted_at),
        **{"charge": Decimal(0), **dict.fromkeys(KNOWN), **known},
    )
    return {**plain(row), **asked_json(job)}


def queue_places(jobs: list[Job]) -> dict[int, QueuePlace]:
    """Return the queue position and expected start of each queued job among `jobs`, by job id.

    Jobs in quarantine, and jobs that no round has considered yet, are left out.
    """
    queued = [job for job in jobs if is_queued(job)]
    if not queued:
        return {}
    orders = read_queue_orders(queued)
    now = {pool: clock.pool_at for pool, clock in read_clocks(orders).items()}
    starts = read_starts(now, [job.pk for job in queued])
    shown = {}
    for job in queued:
        order, start = orders[job.pool_id], starts.get(job.pk)
        place = order.positions.get(job.pk)
        is_unseen = order.round is None or (order.is_ordered and not order.is_long)
        if place is None and start is None and is_unseen:
            continue
        shown[job.pk] = QueuePlace(
            round=order.round,
            position=place.pool if place else None,
            tenant_position=place.tenant if place else None,
            order=order.text,
            start=start,
        )
    return shown
