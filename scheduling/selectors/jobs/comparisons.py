"""The parameters in which jobs differ."""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduling.models import Job
from scheduling.selectors.jobs.requests import job_as_request

# Fields that name a job, or that hold several parameters.
_NAMES = frozenset({"name", "comment", "environment"})
COMMAND = "command"
TEXT_MAX = 200


class Parameter(NamedTuple):
    """A parameter and its value for each job, as text; empty for a job without it."""

    name: str
    values: tuple[str, ...]


def differing_parameters(jobs: Sequence[Job]) -> list[Parameter]:
    """Return the fields, environment variables and sweep parameters that are not equal in all jobs.

    Environment variables are those that the jobs declare. Parameters of sweeps come first. The
    commands of one sweep differ only by its parameters, so they are left out.
    """
    of_jobs = [_parameters(job) for job in jobs]
    names = dict.fromkeys(name for one in of_jobs for name in one)
    sweeps = {job.sweep_id for job in jobs}
    if len(sweeps) == 1 and None not in sweeps:
        names.pop(COMMAND, None)
    rows = [Parameter(name, tuple(one.get(name, "") for one in of_jobs)) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _parameters(job: Job) -> dict[str, str]:
    request = job_as_request(job)
    fields = {name: value for name, value in request.items() if name not in _NAMES}
    environment = dict(job.environment) if isinstance(job.environment, dict) else {}
    # With the index in an array; null outside a sweep.
    swept = job.parameters or {}
    return {name: _text(value) for name, value in {**swept, **fields, **environment}.items()}


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return shlex.join(map(str, value))[:TEXT_MAX]
    if isinstance(value, Mapping):
        return " ".join(f"{name}={one}" for name, one in value.items())[:TEXT_MAX]
    return str(value)[:TEXT_MAX]
