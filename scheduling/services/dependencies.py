"""The jobs that new jobs wait for: found, checked and stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _

from scheduling.engine.bulk import insert_rows
from scheduling.models import Job, JobDependency
from scheduling.requests.job_needs import NEEDS_HINT
from scheduling.requests.jobs import JobRequest
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop, number
from tenants.models import Tenant

Condition = JobDependency.Condition
State = Job.State
# The rows of one submission; without a limit, a sweep that waits for a sweep would make a million.
ROWS_MAX = 20_000
_MET = {
    Condition.AFTER_OK: (State.SUCCEEDED,),
    Condition.AFTER_ANY: (State.SUCCEEDED, State.FAILED, State.CANCELLED),
}
_HOPELESS = {
    State.FAILED: gettext_noop("has failed"),
    State.CANCELLED: gettext_noop("was cancelled"),
}


class Need(NamedTuple):
    """A job that another one waits for, in its present state."""

    job: int
    state: str


# The jobs of each id: one, or all of a sweep.
Needs = Mapping[str, Sequence[Need]]


def find_needs(tenant: Tenant, requests: Mapping[str, JobRequest], jobs: int) -> Needs:
    """Return the jobs that requests wait for; the keys of `requests` are places for errors.

    Two queries, or none without needs. `jobs`: how many jobs are made of each request.

    Raises:
        InvalidInputError: an id is unknown, its job can never fulfil the condition, or the jobs
            would wait for too many others.
    """
    wanted = {UUID(one) for request in requests.values() for one in _ids(request)}
    if not wanted:
        return {}
    rows = Job.objects.filter(tenant=tenant)
    needs: dict[str, list[Need]] = {}
    for uid, pk, state in rows.filter(uid__in=wanted).values_list("uid", "pk", "state"):
        needs[str(uid)] = [Need(pk, state)]
    for uid, pk, state in rows.filter(sweep__uid__in=wanted).values_list(
        "sweep__uid", "pk", "state"
    ):
        needs.setdefault(str(uid), []).append(Need(pk, state))
    errors = FieldErrors()
    for place, request in requests.items():
        own = FieldErrors()
        _check(request, needs, own)
        if sum(len(needs.get(one, ())) for one in _ids(request)) * jobs > ROWS_MAX:
            own.add(
                "after_ok",
                _("makes more than {most} dependencies").format(most=number(ROWS_MAX)),
                code="too_large",
            )
        errors.extend(error.inside(place) for error in own)
    errors.raise_any()
    return needs


def _check(request: JobRequest, needs: Needs, errors: FieldErrors) -> None:
    for index, one in enumerate(request.after_any):
        if one not in needs:
            errors.add(f"after_any[{index}]", _(_UNKNOWN), _(NEEDS_HINT), "unknown")
        elif one in request.after_ok:
            errors.add(f"after_any[{index}]", _("is in after_ok too"), _("Name it once."))
    for index, one in enumerate(request.after_ok):
        if one not in needs:
            errors.add(f"after_ok[{index}]", _(_UNKNOWN), _(NEEDS_HINT), "unknown")
            continue
        bad = next((need.state for need in needs[one] if need.state in _HOPELESS), None)
        if bad is not None:
            hint = _("Use after_any to run in any case.")
            errors.add(f"after_ok[{index}]", _(_HOPELESS[State(bad)]), hint, "conflict")


_UNKNOWN = gettext_noop("is not a job or sweep of this tenant")


def needs_of(request: JobRequest, needs: Needs) -> dict[int, tuple[Condition, str]]:
    """Return condition and state by needed job; success counts if a job is needed in both ways."""
    rows: dict[int, tuple[Condition, str]] = {}
    for condition in (Condition.AFTER_ANY, Condition.AFTER_OK):
        for one in getattr(request, condition.value):
            rows |= {need.job: (condition, need.state) for need in needs.get(one, ())}
    return rows


def waits(request: JobRequest, needs: Needs) -> bool:
    """Return whether a job of the request has to wait for another one."""
    rows = needs_of(request, needs).values()
    return any(state not in _MET[condition] for condition, state in rows)


def insert_dependencies(pairs: Iterable[tuple[Job, JobRequest]], needs: Needs) -> None:
    """Store what stored jobs wait for."""
    if not needs:
        return
    insert_rows(
        "scheduling_jobdependency",
        ("job_id", "needs_id", "condition"),
        (
            (job.pk, need, condition.value)
            for job, request in pairs
            for need, (condition, _) in needs_of(request, needs).items()
        ),
    )


def _ids(request: JobRequest) -> tuple[str, ...]:
    return (*request.after_ok, *request.after_any)
