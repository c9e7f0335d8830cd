"""The fields of the request that submitted a job, from its row."""

from collections.abc import Mapping
from functools import cache

from scheduling.models import Job
from scheduling.requests.job_deadline import StopWhen, duration_text, stop_text
from scheduling.requests.jobs import JobRequest
from tenants.input.requests import RequestField, request_fields


@cache
def stored_fields() -> tuple[str, ...]:
    """Return the request fields that are columns of `Job` with the same name."""
    fields = Job._meta.concrete_fields  # noqa: SLF001 - Django's documented model API
    columns = {one.name for one in fields if not one.is_relation}
    return tuple(name for name in request_fields(JobRequest) if name in columns)


@cache
def shown_fields() -> tuple[RequestField, ...]:
    """Return the request fields that answers about a job contain."""
    return tuple(one for one in request_fields(JobRequest).values() if one.input.is_shown)


def worded_fields(job: Job) -> dict[str, object]:
    """Return the request fields that a job's row stores in other columns or formats.

    The deadline is not included: it is stored as an instant.
    """
    steps = job.deadline_steps or ()
    return {
        "deadline_steps": [":".join(map(str, step)) for step in steps],
        "stop_when": stop_text(StopWhen(job.stop_metric, job.stop_rule, job.stop_value)),
    }


def duration_of(job: Job) -> str:
    """Return the time from a job's submission to its deadline, or "" if it has no deadline."""
    if job.deadline_at is None or job.deadline_at <= job.submitted_at:
        return ""
    return duration_text(job.deadline_at - job.submitted_at)


def wait_of(job: Job) -> str:
    """Return the time from a job's submission to its earliest start, or "" if it has none."""
    return "" if job.not_before is None else duration_text(job.not_before - job.submitted_at)


def job_as_request(job: Job, *, duration_s: int | None = None) -> Mapping[str, object]:
    """Return the request that would submit the same job again, without fields at their defaults.

    `duration_s` is not stored in the row. The tenant is not among the fields.
    """
    profile = job.profile
    values: dict[str, object] = {name: getattr(job, name) for name in stored_fields()}
    values |= worded_fields(job) | {
        # The original's times may have passed, so the copy gets the same durations.
        "deadline": duration_of(job),
        "not_before": wait_of(job),
        "pool": job.pool.name,
        "profile": "" if profile is None else profile.name,
        "duration_s": duration_s,
    }
    # A request without GPU types accepts all types that the job type can run on.
    if profile is not None and set(job.gpu_types) == set(profile.speedups):
        values["gpu_types"] = []
    if job.max_price is not None:
        values["max_price"] = format(job.max_price.normalize(), "f")
    return {
        name: values[name]
        for name, field in request_fields(JobRequest).items()
        if name in values
        and values[name] not in (None, "", [], {})
        and values[name] != field.default
    }
