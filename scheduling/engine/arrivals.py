"""Submits the jobs of imported traces when their submission time is reached in pool time."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from evenshare_core.deadlines.declared import step_texts, steps_of_values
from scheduling.models import Arrival, Job, Profile, VirtualWork
from tenants.scopes import engine_scope

# The maximum number of jobs per transaction; the next round submits the rest.
BATCH = 2000


def submit_arrivals(pool_id: int, *, until: datetime) -> int:
    """Create the jobs that are due by `until`, in order of (time, id); return how many.

    Skip locked rows, whose jobs another round is creating. So each row becomes exactly one job.
    """
    with engine_scope(pool_id):
        due = Arrival.objects.filter(pool_id=pool_id, at__lte=until).order_by("at", "id")
        rows = list(due.select_for_update(skip_locked=True)[:BATCH])
        if rows:
            _submit(rows)
            Arrival.objects.filter(id__in=[row.pk for row in rows]).delete()
    return len(rows)


def job_fields(extra: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    """Return a job's fields from a trace's optional columns, except its profile.

    The job is submitted at `at`.
    """
    fields = {name: extra[name] for name in _TO_JOB if name in extra}
    if "max_price" in fields:
        fields["max_price"] = Decimal(fields["max_price"])
    if "estimate_s" in fields:
        fields["estimate_source"] = "trace"
    values = zip(extra.get("deadline_s", ()), extra.get("values", ()), strict=True)
    return fields | deadline_fields(at, values)


def deadline_fields(at: datetime, values: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """Return the deadline fields of a job that is submitted at `at`; empty without deadlines.

    `values`: pairs of a deadline, in microseconds after the submission, and the job's value if it
    ends by then. A single deadline makes the job strict, several make it soft.
    """
    steps = steps_of_values(values)
    if not steps:
        return {}
    fields: dict[str, Any] = {"deadline_at": at + timedelta(microseconds=steps[0][0])}
    if len(steps) == 1:
        return fields | {"job_class": Job.JobClass.STRICT_SLO}
    declared = step_texts(step for _, step in steps)
    return fields | {"job_class": Job.JobClass.SOFT_SLO, "deadline_steps": declared}


def profile_fields(profile: Profile | None) -> dict[str, Any]:
    """Return the fields of a job of this type; empty for a job without a type."""
    return {} if profile is None else {"profile": profile, "gpu_types": sorted(profile.speedups)}


_TO_JOB = ("cpus", "memory_mb", "weight", "gpu_types", "max_price", "estimate_s", "utility")


def _submit(rows: Sequence[Arrival]) -> None:
    jobs = [
        Job(
            pool_id=row.pool_id,
            tenant_id=row.tenant_id,
            name=row.name,
            submitted_at=row.at,
            source="trace",
            gpus=row.gpus,
            **job_fields(row.extra, row.at),
        )
        for row in rows
    ]
    Job.objects.bulk_create(jobs)
    VirtualWork.objects.bulk_create(
        [
            VirtualWork(
                job=job, duration_us=row.duration_us, exit_code=row.extra.get("exit_code", 0)
            )
            for job, row in zip(jobs, rows, strict=True)
        ]
    )
