"""The work left of a pool's open jobs, and the source of each estimate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.simulation.present import Work
from evenshare_core.units import HOUR_US, ONE_MILLI, SECOND_US
from tenants.sql import fetch_rows

UNKNOWN_US = HOUR_US  # used if no job of the pool has ended yet
LEAST_US = SECOND_US

_HELD = """
SELECT l.job_id, t.name, count(*), min(extract(epoch FROM l.started_at) * 1000000)::bigint,
       sum(extract(epoch FROM l.ended_at - l.started_at) * 1000000)::bigint
FROM scheduling_lease l JOIN scheduling_gputype t ON t.id = l.gpu_type_id
WHERE l.job_id = ANY(%s) AND l.id <> ALL(%s) AND l.state = 'ended' AND l.started_at IS NOT NULL
      AND l.ended_at <= to_timestamp(%s)
GROUP BY l.job_id, t.name
"""

# The median hold time (GPUs held) of the latest 5,000 ended jobs, by tenant; the row with NULL
# covers all tenants.
_MEDIANS = """
SELECT j.tenant_id, percentile_disc(0.5) WITHIN GROUP (ORDER BY w.held_us)
FROM (SELECT id, tenant_id FROM scheduling_job
      WHERE pool_id = %s AND state IN ('succeeded', 'failed') AND ended_at <= to_timestamp(%s)
      ORDER BY ended_at DESC LIMIT 5000) j
JOIN LATERAL (
    SELECT sum(extract(epoch FROM ended_at - started_at) * 1000000)::bigint AS held_us
    FROM scheduling_lease
    WHERE job_id = j.id AND started_at IS NOT NULL AND ended_at IS NOT NULL
) w ON w.held_us > 0
GROUP BY GROUPING SETS ((j.tenant_id), ())
"""


@dataclass(slots=True)
class WorkAssumptions:
    """The numbers of jobs by the source of their estimated work.

    `estimate`: jobs with their own estimate. `tenant`, `pool`: jobs for which the median hold time
    of the tenant's or pool's ended jobs is used. `unknown`: jobs that are assumed to take an hour.
    `past`: jobs that have done all their estimated work, and are assumed to need the same time
    again. `pool_s`: the pool's median in seconds, or None if no job has ended.
    """

    estimate: int = 0
    tenant: int = 0
    pool: int = 0
    unknown: int = 0
    past: int = 0
    pool_s: float | None = None
    unknown_s: float = UNKNOWN_US / SECOND_US


@dataclass(slots=True)
class _Held:
    """The totals of a job's ended leases, in us."""

    leases: int = 0
    started_us: int | None = None
    held_us: int = 0
    done_us: int = 0


def work_left(snapshot: Snapshot) -> tuple[dict[int, Work], WorkAssumptions]:
    """Return the work of every job of a snapshot, and the sources of the estimates. Two queries.

    A job's work is its estimate. Without one, it is the median hold time of its tenant's ended jobs
    in this pool, else of all the pool's jobs, else an hour. The work done is the time that its
    leases held, times the speed of their GPU type. If a job has done all its estimated work, it is
    assumed to need the same time again.
    """
    held = _held(snapshot)
    medians = _medians(snapshot)
    profiles = {row.id: row for row in snapshot.profiles}
    leases = {lease.job: lease for lease in snapshot.leases}
    assumed = WorkAssumptions(pool_s=medians[None] / SECOND_US if None in medians else None)
    work: dict[int, Work] = {}
    for job in snapshot.jobs:
        past = held.get(job.id, _Held())
        done_us = past.done_us + _present_us(job, leases.get(job.id), profiles, snapshot.at_us)
        left_us = _total_us(job, medians, assumed) - done_us
        if left_us <= 0:
            assumed.past += 1
            left_us = done_us
        work[job.id] = _work(past, max(LEAST_US, left_us))
    return work, assumed


def work_done(snapshot: Snapshot) -> dict[int, Work]:
    """Return the work that ended leases have done for each job of a snapshot; `left_us` is 0.

    A single query.
    """
    held = _held(snapshot)
    return {job.id: _work(held.get(job.id, _Held()), 0) for job in snapshot.jobs}


def _work(past: _Held, left_us: int) -> Work:
    return Work(left_us, past.done_us, past.held_us, past.leases, past.started_us)


def _total_us(job: Job, medians: Mapping[int | None, int], assumed: WorkAssumptions) -> int:
    if job.estimate_us is not None:
        assumed.estimate += 1
        return job.estimate_us
    if job.tenant in medians:
        assumed.tenant += 1
        return medians[job.tenant]
    if None in medians:
        assumed.pool += 1
        return medians[None]
    assumed.unknown += 1
    return UNKNOWN_US


def _speed_milli(job: Job, profiles: Mapping[int, Any], gpu_type: str) -> int:
    return int(profiles[job.profile].speed_milli(gpu_type)) if job.profile else ONE_MILLI


def _present_us(job: Job, lease: Lease | None, profiles: Mapping[int, Any], at_us: int) -> int:
    if lease is None:
        return 0
    speed_milli = _speed_milli(job, profiles, lease.gpu_type)
    return max(0, at_us - lease.started_us) * speed_milli // ONE_MILLI


def _held(snapshot: Snapshot) -> dict[int, _Held]:
    """Return the totals of leases that had ended at the snapshot's instant, by job."""
    jobs = {job.id: job for job in snapshot.jobs}
    profiles = {row.id: row for row in snapshot.profiles}
    present = [lease.id for lease in snapshot.leases]
    held: dict[int, _Held] = {}
    for job_id, gpu_type, count, started_us, held_us in fetch_rows(
        _HELD, [list(jobs), present, snapshot.at_us / SECOND_US]
    ):
        row = held.setdefault(job_id, _Held())
        row.leases += count
        row.started_us = min(started_us, row.started_us or started_us)
        row.held_us += int(held_us)
        speed_milli = _speed_milli(jobs[job_id], profiles, gpu_type)
        row.done_us += int(held_us) * speed_milli // ONE_MILLI
    return held


def _medians(snapshot: Snapshot) -> dict[int | None, int]:
    return {
        tenant: int(median)
        for tenant, median in fetch_rows(_MEDIANS, [snapshot.pool, snapshot.at_us / SECOND_US])
        if median
    }
