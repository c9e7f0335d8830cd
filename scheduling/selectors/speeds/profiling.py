"""Profiling runs, for pages and the API."""

from scheduling.models import Job, Profile

# The number of a job type's runs that are shown: one on one GPU, and one on two.
SHOWN = 2


def read_profiling_runs(profile: Profile) -> tuple[Job, ...]:
    """Return a job type's newest profiling runs, newest first. A single query.

    Runs that were cancelled before they started are left out, because they measured nothing.
    """
    runs = Job.objects.filter(profile=profile, profiling_s__gt=0)
    runs = runs.exclude(state=Job.State.CANCELLED, first_started_at__isnull=True)
    return tuple(runs.order_by("-id")[:SHOWN])


def find_active_run(job: Job) -> Job | None:
    """Return the active profiling run of a waiting job's type, or None.

    At most one query. Return None without a query if the job has run, is a profiling run, or is in
    a pool without profiling runs.
    """
    is_new = job.state == Job.State.PENDING and job.terms == 0
    if job.profile is None or job.profiling_s or not is_new or not job.pool.profiling_s:
        return None
    runs = Job.objects.filter(profile=job.profile, profiling_s__gt=0)
    return runs.filter(state__in=Job.ACTIVE_STATES).first()
