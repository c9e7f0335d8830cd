"""Back-offs: jobs that may not start yet.

Policies do not see these jobs; this module adds their skips. Their demand still counts, as for any
waiting job. Meanwhile, other jobs of the tenant can use the GPU-time that it deserves.
"""

from msgspec.structs import replace

from evenshare_core.domain.backoff import LIMIT, Backoff
from evenshare_core.domain.decision import Skip
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot


def jobs_backing_off(snapshot: Snapshot) -> dict[int, Backoff]:
    """Return the active back-offs of waiting jobs, by job, at the time of the snapshot."""
    if not snapshot.backoffs:
        return {}
    held = {lease.job for lease in snapshot.leases}
    waiting = {job.id for job in snapshot.jobs} - held
    at_us = snapshot.at_us
    return {
        row.job: row for row in snapshot.backoffs if row.job in waiting and row.until_us > at_us
    }


def without_backoffs(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with only the jobs that may start or hold a lease."""
    waiting = jobs_backing_off(snapshot)
    if not waiting:
        return snapshot
    jobs = tuple(job for job in snapshot.jobs if job.id not in waiting)
    return replace(snapshot, jobs=jobs, backoffs=())


def backoff_skips(snapshot: Snapshot) -> tuple[Skip, ...]:
    """Return a skip for each waiting job with an active back-off, by job id."""
    waiting = jobs_backing_off(snapshot)
    return tuple(
        Skip(
            Reason.BACKING_OFF,
            job.tenant,
            (job.id,),
            job.gpus,
            {
                "losses": waiting[job.id].losses,
                "limit": LIMIT,
                "until_us": waiting[job.id].until_us,
            },
        )
        for job in snapshot.jobs
        if job.id in waiting
    )
