"""Estimates of jobs in the snapshot, and the past runs on which they are based.

A round reads the measurements and the durations of earlier runs, and stores the estimates with its
snapshot: a replay needs neither. Source: docs/estimation.md.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.jobs import Job as JobValue
from evenshare_core.domain.profiles import Profile as ProfileValue
from evenshare_core.estimation.jobs import (
    RUNS_MOST,
    JobClaims,
    estimate_work,
    job_estimate,
)
from scheduling.engine.snapshot_rows import StoredJob
from scheduling.models import Profile, RunRecord
from scheduling.selectors.jobs.estimates import TypeRecords, read_job_types, read_stops
from tenants.sql import fetch_rows

# The maximum number of job sizes kept per job type; those with the newest runs are kept.
SIZES_MOST = 64

_RUNS = """
SELECT j.id, j.profile_id, j.gpus, j.estimate_s, j.ended_at, t.name,
       sum(extract(epoch FROM l.ended_at - l.started_at) * 1000000)::bigint
FROM scheduling_job j
JOIN scheduling_lease l ON l.job_id = j.id
JOIN scheduling_gputype t ON t.id = l.gpu_type_id
WHERE j.id = ANY(%s) AND j.state = 'succeeded' AND j.profile_id IS NOT NULL
  AND j.profiling_s = 0
  AND l.started_at IS NOT NULL AND l.ended_at IS NOT NULL
GROUP BY 1, 2, 3, 4, 5, 6
ORDER BY j.ended_at, j.id, t.name
"""


def with_estimates(
    rows: Sequence[StoredJob], profiles: Collection[ProfileValue]
) -> tuple[tuple[JobValue, ...], tuple[JobEstimate, ...]]:
    """Return the jobs with their estimated work, and the confidence of each estimate.

    Runs two queries, and one more if jobs stop by a metric. A job without a job type, or whose type
    has neither measurements nor ended runs, keeps its declared `Job.estimate_us`.
    """
    if not profiles:
        return tuple(row.job for row in rows), ()
    types = read_job_types(profiles)
    stops = read_stops([row.job.id for row in rows if row.stop_metric and row.job.profile])
    with_work: list[JobValue] = []
    estimates: list[JobEstimate] = []
    for row in rows:
        job = row.job
        if row.profiling_s:  # a profiling run lasts until its time limit
            with_work.append(job)
            continue
        claims = JobClaims(
            row.iterations, bool(row.stop_metric), job.estimate_us, stops.get(job.id)
        )
        known, estimate = estimated_job(types, job, claims)
        with_work.append(known)
        if estimate is not None:
            estimates.append(estimate)
    return tuple(with_work), tuple(estimates)


def estimated_job(
    types: TypeRecords, job: JobValue, claims: JobClaims
) -> tuple[JobValue, JobEstimate | None]:
    """Return a job with its estimated work, and the estimate, or None if no data exists."""
    size = types.size(job.profile, job.gpus, job.gpu_types) if job.profile else None
    known = None if size is None else estimate_work(claims, size)
    if size is None or known is None:
        return job, None
    work_us = known.work.amount
    return msgspec.structs.replace(job, estimate_us=work_us), job_estimate(job.id, known, size)


def keep_runs(jobs: Sequence[int]) -> None:
    """Store the durations of jobs that have just succeeded and have a job type.

    The caller's transaction recorded their ends and holds the pool's fence. As in `measure`, skip
    job types whose row another transaction has locked: waiting for that transaction could be a
    deadlock.
    """
    ended = _ended(jobs) if jobs else {}
    if not ended:
        return
    held = Profile.objects.select_for_update(no_key=True, skip_locked=True)
    wanted = {profile for profile, _ in ended}
    tenants = dict(held.filter(pk__in=wanted).order_by("id").values_list("pk", "tenant_id"))
    stored = RunRecord.objects.filter(profile__in=tenants)
    before = {(row.profile_id, row.gpus): row for row in stored}
    made = []
    changed = []
    for (profile, gpus), (runs, ended_at) in ended.items():
        row = before.get((profile, gpus))
        if row is not None:
            changed.append(row)
        elif profile in tenants:
            row = RunRecord(tenant_id=tenants[profile], profile_id=profile, gpus=gpus)
            made.append(row)
        else:
            continue
        row.runs = [*row.runs, *runs][-RUNS_MOST:]
        row.ended_at = ended_at
    RunRecord.objects.bulk_update(changed, ["runs", "ended_at"])
    RunRecord.objects.bulk_create(made)
    for profile in sorted({row.profile_id for row in made}):
        _drop_oldest(profile)


def _ended(jobs: Sequence[int]) -> dict[tuple[int, int], tuple[list[dict[str, Any]], datetime]]:
    """Return the jobs' runs in order of their ends, and the last end, by (job type, GPUs)."""
    runs: dict[int, dict[str, Any]] = {}
    by_size: dict[tuple[int, int], tuple[list[dict[str, Any]], datetime]] = {}
    for job, profile, gpus, declared_s, ended_at, kind, held_us in fetch_rows(_RUNS, [list(jobs)]):
        if job not in runs:
            runs[job] = {"held": {}, "declared_s": declared_s}
            earlier = by_size[profile, gpus][0] if (profile, gpus) in by_size else []
            by_size[profile, gpus] = ([*earlier, runs[job]], ended_at)
        runs[job]["held"][kind] = held_us
    return by_size


def _drop_oldest(profile: int) -> None:
    newest = RunRecord.objects.filter(profile=profile).order_by("-ended_at", "-id")
    over = list(newest.values_list("id", flat=True)[SIZES_MOST:])
    if over:
        RunRecord.objects.filter(pk__in=over).delete()
