"""Profiling runs as pages and the API show them."""

from __future__ import annotations

from scheduling.models import Job, Profile

# Of a job type are shown: the run on one GPU and that on two.
SHOWN = 2


def read_profiling_runs(profile: Profile) -> tuple[Job, ...]:
    """Return a job type's newest profiling runs, the newest first. One query.

    Those that were cancelled before they started measured nothing, and are left out.
    """
    runs = Job.objects.filter(profile=profile, profiling_s__gt=0)
    runs = runs.exclude(state=Job.State.CANCELLED, first_started_at__isnull=True)
    return tuple(runs.order_by("-id")[:SHOWN])


def find_active_run(job: Job) -> Job | None:
    """Return the profiling run of a waiting job's type that waits or runs now, if there is one.

    One query at most; none for a job that ran, that is a run itself, or whose pool has no runs.
    """
    is_new = job.state == Job.State.PENDING and job.terms == 0
    if job.profile is None or job.profiling_s or not is_new or not job.pool.profiling_s:
        return None
    runs = Job.objects.filter(profile=job.profile, profiling_s__gt=0)
    return runs.filter(state__in=Job.ACTIVE_STATES).first()
