"""Submission of jobs. A job is committed to PostgreSQL before the caller gets an answer."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from django.conf import settings
from django.db.models import JSONField
from django.utils.translation import gettext as _

from evenshare_core.deadlines.declared import step_texts
from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.domain.held_jobs import HoldCode, first_hold
from evenshare_core.policies.shared.held_jobs import REASONS
from evenshare_core.units import SECOND_US
from scheduling.engine.bulk import document, insert_rows
from scheduling.engine.clock import Clocks, PoolNow
from scheduling.engine.profiles import lock_profiles
from scheduling.models import Job, Profile
from scheduling.requests.job_deadline import deadline_at, parsed_steps, parsed_stop
from scheduling.requests.job_queue import earliest_start
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.jobs.requests import stored_fields
from scheduling.selectors.pools.offers import PoolOffer, pool_offer
from scheduling.services.budget_refusals import blocking_books, budget_error
from scheduling.services.dependencies import Needs, find_needs, insert_dependencies, waits
from scheduling.services.job_requests import deadline_errors, named_pool, read_job_request
from scheduling.services.priorities import check_priorities
from scheduling.services.wake import wake_pool_after_commit
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import ERRORS_MAX, FieldErrors, InvalidInputError, invalid
from tenants.models import Tenant, User
from tenants.rate import Rate, take
from tenants.scopes import tenant_scope
from tenants.sql import fetch_rows

BULK_MAX = 1000
# A burst: at once, a tenant may submit as many jobs as its rate allows in this many seconds.
BURST_S = 10
# The cost of a single or a bulk request against the rate. A bulk request is one transaction, but a
# long one.
ONE, BULK = 1.0, 20.0


class PendingLimitError(Exception):
    """The tenant has reached its limit of waiting jobs; nothing was submitted."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a tenant may have {limit} queued jobs")
        self.limit = limit


def submit_job(
    *,
    tenant: Tenant,
    user: User | None,
    spec: Mapping[str, object],
    now: Clocks,
    key: str | None = None,
    source: str = "api",
) -> Made[Job]:
    """Submit the job that `spec` describes (`scheduling.requests.jobs.JobRequest`).

    With an idempotency `key`, the same request of the same user returns the job of the first
    request, in its present state.

    Raises:
        tenants.rate.RateError: the tenant submits faster than its rate; the request was not read.
        InvalidInputError: the specification is wrong; with all its errors.
        PendingLimitError: the tenant has too many waiting jobs.
        tenants.idempotency.MismatchError: the key was used with another specification.
        tenants.idempotency.InFlightError: the same request is still being served.
    """
    take_rate(tenant, ONE)
    asked = KeyedRequest.of(tenant, user, "jobs", key, spec)
    (job,), is_replay = _submit(Submitter(tenant, user, source, now), {"": spec}, asked)
    return Made(job, is_replay)


def submit_jobs(
    *,
    tenant: Tenant,
    user: User | None,
    specs: Sequence[object],
    now: Clocks,
    key: str | None = None,
    source: str = "api",
) -> Made[list[Job]]:
    """Submit all jobs of a list, at most `BULK_MAX`, or none; errors name fields as `jobs[3].gpus`.

    Raises:
        tenants.rate.RateError, InvalidInputError, PendingLimitError, and those of
            `tenants.idempotency`: as for `submit_job`.
    """
    if not 1 <= len(specs) <= BULK_MAX:
        raise invalid("jobs", _("must have from 1 to {most} items").format(most=BULK_MAX))
    take_rate(tenant, BULK)
    asked = KeyedRequest.of(tenant, user, "jobs/bulk", key, specs)
    placed = {f"jobs[{index}]": spec for index, spec in enumerate(specs)}
    return _submit(Submitter(tenant, user, source, now), placed, asked)


@dataclass(frozen=True, slots=True)
class Submitter:
    """The values that all jobs of one call share."""

    tenant: Tenant
    user: User | None
    source: str
    now: Clocks


def _submit(
    by: Submitter, specs: Mapping[str, object], asked: KeyedRequest | None
) -> Made[list[Job]]:
    """Submit all jobs or none. The keys of `specs` are prefixes of the fields in errors."""
    with tenant_scope(by.tenant.pk):
        uids = [uuid.uuid4() for _ in specs]
        before = begin_reply(asked, [str(uid) for uid in uids]) if asked else None
        if before is not None:
            stored = Job.objects.select_related("tenant", "pool", "profile")
            made = stored.filter(uid__in=before, tenant=by.tenant).order_by("id")
            return Made(list(made), is_replay=True)
        read = _read_all(by.tenant, specs)
        admitted = admit(by, read)
        jobs = [admitted.job(one, uid) for one, uid in zip(read, uids, strict=True)]
        admitted.insert(jobs, read)
    return Made(jobs, is_replay=False)


class Accepted(NamedTuple):
    """A valid request, its pool, and its prefix in errors."""

    request: JobRequest
    offer: PoolOffer
    place: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """Requests that passed all checks, and what their jobs need to be stored."""

    by: Submitter
    profiles: Mapping[tuple[int, str], Profile]
    readings: Mapping[int, PoolNow]
    needs: Needs

    def job(self, accepted: Accepted, uid: uuid.UUID) -> Job:
        """Return the job of a request, not stored yet."""
        job = _job(self.by, accepted, self.profiles, self.readings[accepted.offer.id], uid)
        if waits(accepted.request, self.needs):
            hold_new(job, Job.Hold.DEPENDENCY)
        return job

    def insert(self, jobs: Sequence[Job], read: Sequence[Accepted]) -> None:
        """Store jobs and what they wait for, and request rounds of their pools."""
        _insert(jobs, read)
        pairs = zip(jobs, (one.request for one in read), strict=True)
        insert_dependencies(pairs, self.needs)
        for offer in {one.offer.id: one.offer for one in read}.values():
            wake_pool_after_commit(offer)


def hold_new(job: Job, code: Job.Hold) -> None:
    """Hold a job that is not stored yet."""
    job.holds = [*job.holds, code.value]
    job.reason_code, job.eligible_at = REASONS[first_hold(job.holds)].value, None


def admit(by: Submitter, read: Sequence[Accepted], *, jobs_each: int = 1) -> Admitted:
    """Check valid requests against the tenant's state, in the transaction that stores their jobs.

    `jobs_each`: how many jobs will be stored for each request.

    Raises:
        InvalidInputError, PendingLimitError: as for `submit_job`.
    """
    _check_budgets(by, read)
    check_priorities(by.tenant, by.user, {one.place: one.request.priority for one in read})
    _make_room(by.tenant, len(read) * jobs_each)
    profiles = _profiles(by.tenant, read)
    readings = {pool_id: by.now(pool_id) for pool_id in {one.offer.id for one in read}}
    _check_deadlines(read, readings)
    needs = find_needs(by.tenant, {one.place: one.request for one in read}, jobs_each)
    return Admitted(by, profiles, readings, needs)


def take_rate(tenant: Tenant, cost: float) -> None:
    """Count a submission against the tenant's rate, over all interfaces and processes.

    This comes before the transaction of the submission, so that submissions do not block each
    other.
    """
    per_s = float(settings.SUBMISSIONS_PER_S)
    take(f"submit:{tenant.pk}", Rate(per_s, per_s * BURST_S), cost)


def _read_all(tenant: Tenant, specs: Mapping[str, object]) -> list[Accepted]:
    offers: dict[str, PoolOffer | None] = {}
    read: list[Accepted] = []
    errors = FieldErrors()
    for place, spec in specs.items():
        name = named_pool(spec)
        if name not in offers:
            offers[name] = pool_offer(name, tenant.pk)
        offer = offers[name]
        try:
            request = read_job_request(spec, offer)
        except InvalidInputError as error:
            errors.extend(one.inside(place) for one in error.errors)
            if len(errors.errors) >= ERRORS_MAX:
                break
        else:
            assert offer is not None  # noqa: S101 - else there were errors
            read.append(Accepted(request, offer, place))
    errors.raise_any()
    return read


def _check_deadlines(read: Sequence[Accepted], readings: Mapping[int, PoolNow]) -> None:
    """Refuse deadlines that have passed, or are too far ahead, on the clock of the job's pool."""
    errors = FieldErrors()
    for one in read:
        own = deadline_errors(one.request, readings[one.offer.id].pool_at)
        errors.extend(error.inside(one.place) for error in own)
    errors.raise_any()


def _check_budgets(by: Submitter, read: Sequence[Accepted]) -> None:
    """Refuse jobs that would have to borrow while a blocking budget is used up."""
    books = blocking_books(by.tenant, {one.offer.book for one in read})
    errors = FieldErrors()
    for one in read:
        if one.offer.book in books:
            error = budget_error(by.tenant, one.request, one.offer, by.now)
            if error is not None:
                errors.extend([error.inside(one.place)])
    errors.raise_any()


def _profiles(tenant: Tenant, read: Sequence[Accepted]) -> dict[tuple[int, str], Profile]:
    """Lock the named profiles, and check them again under the lock."""
    held: dict[tuple[int, str], Profile] = {}
    for pool_id in sorted({one.offer.id for one in read if one.request.profile}):
        wanted = {(tenant.pk, one.request.profile) for one in read if one.request.profile}
        rows = lock_profiles(pool_id, wanted)
        held |= {(pool_id, name): row for (_, name), row in rows.items()}
    for one in read:
        profile, gpu_types = one.request.profile, set(one.request.gpu_types)
        row = held.get((one.offer.id, profile))
        if profile and (row is None or not gpu_types <= set(row.speedups)):
            raise invalid("profile", _("was changed meanwhile"), _("Submit again."))
    return held


def _job(
    by: Submitter,
    accepted: Accepted,
    profiles: Mapping[tuple[int, str], Profile],
    now: PoolNow,
    uid: uuid.UUID,
) -> Job:
    request, pool_id = accepted.request, accepted.offer.id
    stored = {name: getattr(request, name) for name in stored_fields()}
    return Job(
        **stored
        | {
            "uid": uid,
            "tenant": by.tenant,
            "pool_id": pool_id,
            "name": request.name or f"job-{uid.hex[:8]}",
            "submitted_by": by.user,
            "submitted_at": now.pool_at,
            "created_at": now.wall,
            "source": by.source,
            "command": list(request.command),
            "gpu_types": list(request.gpu_types),
            # Without a utility the column is NULL, never an empty object.
            "utility": request.utility or None,
            "profile": profiles.get((pool_id, request.profile)),
            **_deadline_columns(request, now),
            **_queue_columns(request, now),
        }
    )


def _deadline_columns(request: JobRequest, now: PoolNow) -> dict[str, object]:
    steps, stop = parsed_steps(request.deadline_steps), parsed_stop(request.stop_when)
    return {
        "deadline_at": deadline_at(request.deadline, now.pool_at),
        "deadline_steps": step_texts(steps) or None,
        "estimate_source": "" if request.estimate_s is None else EstimateSource.DECLARED.value,
        "stop_metric": stop.metric,
        "stop_rule": stop.rule,
        "stop_value": stop.value,
    }


def _queue_columns(request: JobRequest, now: PoolNow) -> dict[str, object]:
    starts_at = earliest_start(request.not_before, now.pool_at)
    holds = [Job.Hold.TENANT.value] if request.held else []
    why = REASONS[first_hold(holds) if holds else HoldCode.NOT_BEFORE].value
    return {
        "not_before": starts_at,
        "holds": holds,
        "eligible_at": None if holds else starts_at,
        "reason_code": why if holds or starts_at else "",
    }


def _insert(jobs: Sequence[Job], read: Sequence[Accepted]) -> None:
    columns, documents = _columns()
    values_of, documents_of = attrgetter(*columns), attrgetter(*documents)
    ids = insert_rows(
        "scheduling_job",
        (*columns, *documents),
        ((*values_of(job), *map(document, documents_of(job))) for job in jobs),
        returning=("uid", "id"),
    )
    by_uid = dict(ids)
    for job in jobs:
        job.pk = by_uid[job.uid]
    simulated = [
        (job.pk, one.request.duration_s * SECOND_US, 0, "", None, 0)
        for job, one in zip(jobs, read, strict=True)
        if one.request.duration_s is not None
    ]
    if simulated:
        columns = ("job_id", "duration_us", "done_us", "token", "launched_us", "exit_code")
        insert_rows("scheduling_virtualwork", columns, simulated)


@cache
def _columns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    fields = Job._meta.concrete_fields  # noqa: SLF001 - Django's documented model API
    documents = tuple(one.attname for one in fields if isinstance(one, JSONField))
    plain = (one.attname for one in fields if not one.primary_key)
    return tuple(name for name in plain if name not in documents), documents


def _make_room(tenant: Tenant, jobs: int) -> None:
    """Enforce the tenant's limit of waiting jobs, exactly, under concurrent submissions.

    Far below the limit, a single job is counted without a lock. The margin covers all concurrent
    submissions: one locked bulk request, and one job per connection.
    """
    limit: int = settings.PENDING_JOBS_MAX
    if jobs == 1 and _pending(tenant) + 2 * BULK_MAX <= limit:
        return
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if _pending(tenant) + jobs > limit:
        raise PendingLimitError(limit)


def _pending(tenant: Tenant) -> int:
    query = "SELECT count(*) FROM scheduling_job WHERE tenant_id = %s AND state = 'pending'"
    ((count,),) = fetch_rows(query, [tenant.pk])
    return int(count)
