"""Replays traces into a pool: jobs arrive at the trace's times, in pool time.

Imported traces are stored as rows (`scheduling.engine.arrivals`); the demo's trace is read from its
file.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from evenshare_core.domain.utilities import read_utility, utility_data
from evenshare_core.units import SECOND_US
from scheduling.engine.arrivals import deadline_fields, profile_fields, submit_arrivals
from scheduling.engine.bundled_traces import TraceJob, read_trace
from scheduling.engine.profiles import lock_profiles
from scheduling.models import Job, TraceFeed, VirtualWork
from scheduling.requests.job_deadline import parsed_stop
from tenants.models import Tenant
from tenants.scopes import engine_scope

# The maximum number of jobs per transaction, however much time has passed.
BATCH = 2000


def feed(pool_id: int, *, until: datetime) -> int:
    """Submit the jobs of traces that are due by `until`; return how many."""
    return submit_arrivals(pool_id, until=until) + _bundled(pool_id, until)


def _bundled(pool_id: int, until: datetime) -> int:
    """Submit the due jobs of the pool's bundled trace, if it has one.

    At its end the trace starts again, shifted by its length, without the jobs that waited from the
    start. While more than `max_pending` jobs wait, without held ones, the trace is held back. So
    the queue of an overloaded demo stays bounded.
    """
    with engine_scope(pool_id):
        row = TraceFeed.objects.select_for_update().filter(pool_id=pool_id).first()
        if row is None:
            return 0
        waiting = Job.objects.filter(pool_id=pool_id, state=Job.State.PENDING, holds=[])
        pending = waiting.count()
        if pending > row.max_pending:
            _stand_still(row, until)
            row.save(update_fields=["held_back", "started_at"])
            return 0
        due = _due(row, until)
        _submit(row, due)
        row.save(update_fields=["cycle", "position"])
    return len(due)


def _due(row: TraceFeed, until: datetime) -> list[tuple[TraceJob, int, datetime]]:
    """Advance the feed; return (trace job, cycle, submission) of the due jobs."""
    jobs = read_trace(row.trace)
    due: list[tuple[TraceJob, int, datetime]] = []
    while len(due) < BATCH:
        submitted_at = _next_at(row, jobs)
        if submitted_at > until:
            break
        due.append((jobs[row.position], row.cycle, submitted_at))
        row.position += 1
    return due


def _next_at(row: TraceFeed, jobs: Sequence[TraceJob]) -> datetime:
    """Return when the next job is due. After its last job, the trace starts again."""
    if row.position == len(jobs):
        row.cycle += 1
        row.position = next(i for i, job in enumerate(jobs) if job.submit_s > 0)
    seconds = row.cycle * row.length_s + jobs[row.position].submit_s
    return row.started_at + timedelta(seconds=seconds)


def _stand_still(row: TraceFeed, until: datetime) -> None:
    """Shift the trace so that its next job is not due before `until`."""
    row.held_back += 1
    row.started_at += max(until - _next_at(row, read_trace(row.trace)), timedelta())


def _submit(feed_row: TraceFeed, due: list[tuple[TraceJob, int, datetime]]) -> None:
    pool_id, name = feed_row.pool_id, feed_row.trace.partition("_")[0]
    tenants = dict(Tenant.objects.values_list("slug", "id"))
    made = [
        (tenants[f"vc-{job.tenant}"], job, cycle, submitted_at) for job, cycle, submitted_at in due
    ]
    named = {(tenant_id, job.profile) for tenant_id, job, _, _ in made if job.profile}
    profiles = lock_profiles(pool_id, named)
    jobs = [
        Job(
            pool_id=pool_id,
            tenant_id=tenant_id,
            name=f"{job.profile or name}-{job.trace_id}" + (f"-r{cycle}" if cycle else ""),
            submitted_at=submitted_at,
            source="trace",
            gpus=job.gpus,
            **profile_fields(profiles.get((tenant_id, job.profile))),
            **_said_fields(job),
            **deadline_fields(submitted_at, job.deadlines),
        )
        for tenant_id, job, cycle, submitted_at in made
    ]
    Job.objects.bulk_create(jobs)
    VirtualWork.objects.bulk_create(
        [
            VirtualWork(job=job, duration_us=max(trace.duration_s, 1) * SECOND_US)
            for job, (trace, _, _) in zip(jobs, due, strict=True)
        ]
    )


def _said_fields(job: TraceJob) -> dict[str, Any]:
    """Return the fields for a trace job's utility, and for its duration or stopping metric."""
    fields: dict[str, Any] = {}
    if job.iterations:
        fields["iterations"] = job.iterations
    if job.utility:
        fields["utility"] = utility_data(read_utility(0, job.utility))
    if job.stop_when:
        stop = parsed_stop(job.stop_when)
        fields |= {
            "stop_metric": stop.metric,
            "stop_rule": stop.rule,
            "stop_value": stop.value,
        }
    elif job.utility or job.deadlines or job.estimate_s:
        fields["estimate_s"] = job.estimate_s or max(job.duration_s, 1)
        fields["estimate_source"] = "trace"
    return fields
