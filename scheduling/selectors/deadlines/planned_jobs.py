"""Active jobs of a pool with deadlines: their states, and when rounds plan to run them."""

from dataclasses import dataclass
from datetime import datetime

from scheduling.models import Job
from scheduling.selectors.deadlines.answers import DeadlineStory, read_standings
from scheduling.selectors.visibility import Visibility, VisibleTenant

# The maximum number of a pool's jobs that are read for plans, in order of their deadlines.
READ_MAX = 500


@dataclass(frozen=True, slots=True)
class PlannedDeadlineJob:
    """A planned job as a viewer may see it. Pool time; `ends` is the end of its last lease.

    `own`: the job and its state, or None if the viewer may not see its tenant's jobs.
    """

    tenant: VisibleTenant
    gpus: int
    starts: datetime
    ends: datetime
    own: tuple[Job, DeadlineStory] | None


def list_dated_jobs(
    pool_id: int, tenant_id: int, *, at: datetime, limit: int
) -> tuple[list[tuple[Job, DeadlineStory]], bool]:
    """Return a tenant's active jobs with deadlines, earliest first, and whether there are more.

    Each job comes with its state by its last answer. `at` is pool time. At most two queries.
    """
    rows = list(
        Job.objects.filter(
            pool_id=pool_id,
            tenant_id=tenant_id,
            state__in=Job.ACTIVE_STATES,
            deadline_at__isnull=False,
        ).order_by("deadline_at", "submitted_at", "id")[: limit + 1]
    )
    stories = read_standings(rows, {pool_id: at})
    dated = [(job, stories[job.pk]) for job in rows if job.pk in stories]
    return dated[:limit], len(rows) > limit


def list_planned_jobs(
    pool_id: int, visibility: Visibility, *, at: datetime, limit: int
) -> tuple[list[PlannedDeadlineJob], bool]:
    """Return the plans of visible tenants from pool time `at` on, and whether there are more.

    Sorted by start. Only jobs with the `READ_MAX` earliest deadlines are read. At most two queries.
    """
    jobs = list(
        Job.objects.filter(
            pool_id=pool_id,
            tenant_id__in=list(visibility.known),
            state__in=Job.ACTIVE_STATES,
            deadline_at__isnull=False,
        ).order_by("deadline_at", "submitted_at", "id")[: READ_MAX + 1]
    )
    stories = read_standings(jobs, {pool_id: at})
    rows = [_planned(job, stories.get(job.pk), visibility, at) for job in jobs]
    planned = sorted((row for row in rows if row is not None), key=lambda row: row.starts)
    return planned[:limit], len(planned) > limit or len(jobs) > READ_MAX


def _planned(
    job: Job, story: DeadlineStory | None, visibility: Visibility, at: datetime
) -> PlannedDeadlineJob | None:
    """Return a job's plan; None if no lease is planned or the viewer may not see its tenant."""
    tenant = visibility.of(job.tenant_id)
    last = story.last if story is not None else None
    if tenant is None or story is None or last is None:
        return None
    to_come = [(max(one.starts_at, at), one.ends_at) for one in last.leases if one.ends_at > at]
    if not to_come:
        return None
    own = (job, story) if visibility.jobs_of(tenant.id) else None
    return PlannedDeadlineJob(tenant, last.gpus, to_come[0][0], to_come[-1][1], own)
