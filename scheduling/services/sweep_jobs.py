"""The jobs that a request for a sweep makes. Pure."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _
from msgspec.structs import replace

from scheduling.requests.process import KIB, read_command, read_environment
from scheduling.requests.sweep_points import (
    ARRAY_HINT,
    INDEX,
    SweepPoint,
    filled_command,
    parse_array,
    sweep_points,
)
from scheduling.requests.sweeps import SweepRequest
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services.job_requests import read_completed
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

NAME_MAX = 63
# All jobs of a sweep are stored in one transaction, so their texts must fit into memory.
SWEEP_MIB = 8
TOO_LARGE = gettext_noop("makes jobs whose commands and environments exceed {size} MiB in total")
SMALLER_HINT = gettext_noop("Pass long values in a file, or submit several sweeps.")


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A job of a new sweep: its place, its parameters, and its request."""

    place: int
    parameters: Mapping[str, str]
    request: SweepRequest


def read_first_job(raw: object, offer: PoolOffer | None) -> SweepRequest:
    """Return the request of a sweep's first job.

    Raises:
        InvalidInputError: the sweep would be refused.
    """
    _, jobs = jobs_of_sweep(read_completed(SweepRequest, raw, offer))
    return jobs[0].request


def count_jobs(raw: object, offer: PoolOffer | None) -> tuple[int, int | None]:
    """Return the number of jobs of a sweep, and how many may run at once (None if all).

    Raises:
        InvalidInputError: the sweep would be refused.
    """
    at_once, jobs = jobs_of_sweep(read_completed(SweepRequest, raw, offer))
    return len(jobs), at_once


def jobs_of_sweep(request: SweepRequest) -> tuple[int | None, list[SweepJob]]:
    """Return the number of jobs that may run at once, None if all, and the jobs.

    Raises:
        InvalidInputError: the request makes no jobs, or jobs that cannot be submitted.
    """
    errors = FieldErrors()
    array = parse_array(request.array, errors)
    if array.at_once and request.at_once not in (None, array.at_once):
        errors.add("at_once", _("differs from the array's %"), _("Give one of the two."))
    points = sweep_points(
        array, request.matrix, errors, include=request.include, exclude=request.exclude
    )
    if not points and not errors:
        errors.add("array", _("or a matrix is required"), _(ARRAY_HINT), "required")
    for name in sorted(request.environment.keys() & set(request.matrix).union(*request.include)):
        field = "matrix" if name in request.matrix else "include"
        errors.add(f"{field}.{name}", _("is in the environment too"), _("Give it once."))
    errors.raise_any()
    named_by_index = bool(array.indices) and not (request.matrix or request.include)
    children, total_bytes = [], 0
    for place, point in enumerate(points):
        number = point.index if named_by_index else place
        own = _request_of_job(request, point, number, errors)
        total_bytes += _bytes_of(own)
        if total_bytes > SWEEP_MIB * KIB**2:
            field = "matrix" if request.matrix else "array"
            errors.add(field, _(TOO_LARGE).format(size=SWEEP_MIB), _(SMALLER_HINT), "too_large")
        children.append(SweepJob(place, _parameters(request, point), own))
        if errors:
            break  # the other jobs have the same errors, or are too many
    errors.raise_any()
    return array.at_once or request.at_once, children


def _request_of_job(
    request: SweepRequest, point: SweepPoint, number: int, errors: FieldErrors
) -> SweepRequest:
    name = f"{request.name}-{number}"
    if len(name) > NAME_MAX:
        spare = NAME_MAX - len(f"-{number}")
        hint = _("At most {spare} characters: its jobs add a number.").format(spare=spare)
        errors.add("name", _("is too long for a sweep"), hint, "too_long")
    command = filled_command(request.command, point, errors)
    environment = {**request.environment, **point.parameters}
    if command:
        read_command({"command": command}, errors)
    read_environment({"environment": environment}, errors)
    return replace(request, name=name, command=command, environment=environment)


def _bytes_of(request: SweepRequest) -> int:
    texts = (*request.command, *itertools.chain.from_iterable(request.environment.items()))
    return sum(len(text.encode(errors="surrogatepass")) for text in texts)


def _parameters(request: SweepRequest, point: SweepPoint) -> dict[str, str]:
    index = {INDEX: str(point.index)} if request.array else {}
    return {**index, **point.parameters}
