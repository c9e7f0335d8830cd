"""All jobs of a pool, in any state, with the work that they took."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from evenshare_core.domain.deadlines import MOST_REWARD_MICRO, DeadlineClass
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.offers import lower_limit
from evenshare_core.domain.utilities import Utility, UtilityError, stated_utility
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.simulation.trace_fields import NAME_MAX
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import ONE_MILLI, REWARD_MICRO, SECOND_US
from scheduling.models import Job, Lease, VirtualWork
from scheduling.selectors.deadlines.instants import deadline_steps_of
from scheduling.selectors.sharing.settings import price_limits
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class PastJobs:
    """Jobs in the order of their ids; `tenants`: slugs by id.

    `guessed`: the number of jobs whose work is not known yet. `quarantined`: the number of jobs
    left out, without held ones. `scaled`: the number of jobs whose first deadline step earns more
    points in a simulation.
    """

    jobs: tuple[SimJob, ...]
    tenants: Mapping[int, str]
    guessed: int
    quarantined: int
    scaled: int = 0


def past_jobs(
    pool_id: int,
    left_us: Mapping[int, int],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> PastJobs:
    """Return every job of a pool as input of a simulation. Five queries.

    With `since` and `until`, only jobs that were submitted between these, inclusive.

    A job's work is the duration given for the virtual executor. Without one, it is the work that
    its leases did. If the job has not ended, `left_us` is added; if it was cancelled, the same work
    is added again. The sum is then at least the job's estimate, and at least a second.
    """
    rows = Job.objects.filter(pool_id=pool_id).select_related("profile").order_by("id")
    if since is not None:
        rows = rows.filter(submitted_at__gte=since)
    if until is not None:
        rows = rows.filter(submitted_at__lte=until)
    works = VirtualWork.objects.filter(job__pool_id=pool_id)
    if since is not None:
        works = works.filter(job__submitted_at__gte=since)
    durations = {
        job_id: (duration_us, exit_code)
        for job_id, duration_us, exit_code in works.values_list(
            "job_id", "duration_us", "exit_code"
        )
    }
    done = _done_us(pool_id, since)
    limits = price_limits(pool_id)
    jobs, guessed, quarantined, scaled = [], 0, 0, 0
    for row in rows:
        # A job that was cancelled while held keeps its holds: it was no demand at its end.
        if row.quarantine or row.is_held or row.holds:
            quarantined += bool(row.quarantine)
            continue
        steps = deadline_steps_of(row)
        scaled += bool(steps) and steps[0].reward_micro < MOST_REWARD_MICRO[DeadlineClass.SOFT]
        if row.pk in durations:
            work_us, exit_code = durations[row.pk]
            failed = bool(exit_code)
        else:
            work_us, failed = done.get(row.pk, 0), row.state == Job.State.FAILED
            if row.state not in (Job.State.SUCCEEDED, Job.State.FAILED):
                guessed += 1
                estimate_us = (row.estimate_s or 0) * SECOND_US
                more_us = left_us.get(row.pk, work_us)
                work_us = max(estimate_us, work_us + more_us, SECOND_US)
        jobs.append(_sim_job(row, max(1, work_us), limits.get(row.tenant_id), failed=failed))
    tenants = Tenant.objects.filter(pk__in={job.tenant for job in jobs})
    return PastJobs(
        tuple(jobs), dict(tenants.values_list("pk", "slug")), guessed, quarantined, scaled
    )


def open_jobs_count(pool_id: int, at: datetime) -> int:
    """Return the number of jobs that were submitted before an instant and had not ended by then.

    Held jobs and jobs in quarantine are left out.
    """
    still = Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    rows = Job.objects.filter(still, pool_id=pool_id, submitted_at__lt=at, quarantine="", holds=[])
    return rows.count()


def _done_us(pool_id: int, since: datetime | None) -> dict[int, int]:
    done: dict[int, int] = {}
    leases = Lease.objects.filter(pool_id=pool_id, started_at__isnull=False, ended_at__isnull=False)
    if since is not None:
        leases = leases.filter(job__submitted_at__gte=since)
    rows = leases.values_list(
        "job_id", "gpu_type__name", "started_at", "ended_at", "job__profile__speedups"
    )
    for job_id, gpu_type, started_at, ended_at, speedups in rows:
        speed_milli = (speedups or {}).get(gpu_type, ONE_MILLI)
        if started_at is None or ended_at is None:
            continue  # never happens, as the filter excludes NULL; only the type checker needs this
        held_us = max(0, to_us(ended_at) - to_us(started_at))
        done[job_id] = done.get(job_id, 0) + held_us * speed_milli // ONE_MILLI
    return done


def _sim_job(row: Job, work_us: int, price_limit: int | None, *, failed: bool) -> SimJob:
    submitted_us = to_us(row.arrived_at)
    cancelled_at = row.cancel_asked_at
    if cancelled_at is None and row.state == Job.State.CANCELLED:
        cancelled_at = row.ended_at
    deadline_us = None if row.deadline_at is None else to_us(row.deadline_at)
    values = values_of(row)
    if values:
        deadline_us = values[0][0]
    return SimJob(
        id=row.pk,
        tenant=row.tenant_id,
        gpus=row.gpus,
        submitted_us=submitted_us,
        duration_us=work_us,
        gpu_types=tuple(row.gpu_types),
        weight=row.weight,
        max_price_micro=lower_limit(
            None if row.max_price is None else to_micro(row.max_price), price_limit
        ),
        deadline_us=None if deadline_us is None else max(deadline_us, submitted_us),
        estimate_us=None if row.estimate_s is None else row.estimate_s * SECOND_US,
        cancel_us=None if cancelled_at is None else max(to_us(cancelled_at), submitted_us),
        failed=failed,
        # Job names need not be unique, but names in a trace must be. So the job's number is added.
        name=f"{row.pk}-{' '.join(row.name.split())}"[:NAME_MAX],
        model=row.profile.name if row.profile else "",
        cpus=row.cpus,
        memory_mb=row.memory_mb,
        utility=utility_of(row),
        values=values,
    )


def values_of(row: Job) -> tuple[tuple[int, int], ...]:
    """Return a job's deadlines as pairs of a time and the points for an end by then.

    Empty if it has no deadline. If any points are fractional, all are in millionths. Times that had
    passed when the job's last hold ended are moved to just after its arrival, one after the other.
    """
    steps = deadline_steps_of(row)
    is_whole = all(step.reward_micro % REWARD_MICRO == 0 for step in steps)
    unit = REWARD_MICRO if is_whole else 1
    after_us, values = to_us(row.arrived_at), []
    for step in steps:
        after_us = max(step.by_us, after_us + 1)
        values.append((after_us, step.reward_micro // unit))
    return tuple(values)


def utility_of(row: Job) -> Utility | None:
    """Return a job's utility, or None if the job has none or it cannot be read."""
    try:
        return stated_utility(row.pk, row.utility)
    except UtilityError:
        return None
