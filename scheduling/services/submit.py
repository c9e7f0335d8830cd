"""Submits jobs. An accepted one is in Postgres before anybody is told so."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models import JSONField

from evenshare_core.deadlines.declared import step_texts
from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.units import SECOND_US
from scheduling.engine.bulk import document, insert_rows, next_ids
from scheduling.engine.clock import PoolNow
from scheduling.engine.profiles import lock_profiles
from scheduling.models import Job, Profile, VirtualWork
from scheduling.requests.job_deadline import deadline_at, parsed_steps, parsed_stop
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.job_requests import stored_fields
from scheduling.selectors.offers import PoolOffer, pool_offer
from scheduling.services.budget_refusals import blocking_books, budget_error
from scheduling.services.job_requests import deadline_errors, named_pool, read_job_request
from scheduling.services.wake import wake_pool_after_commit
from tenants.idempotency import KeyedRequest, begin_reply
from tenants.input.errors import ERRORS_MAX, FieldErrors, InvalidInputError, invalid
from tenants.models import Tenant, User
from tenants.rate import Rate, take
from tenants.scopes import tenant_scope

BULK_MAX = 1000
# So many seconds of a tenant's rate may come at once.
BURST_S = 10
# What a submission takes of it: a bulk of any size makes one transaction, but a long one.
ONE, BULK = 1.0, 20.0
# The reading of the clock of the job's pool, or what reads it once the pool is known.
Now = PoolNow | Callable[[int], PoolNow]


class PendingLimitError(Exception):
    """The tenant has as many waiting jobs as it may have; nothing was submitted."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a tenant may have {limit} waiting jobs")
        self.limit = limit


class SubmittedJob(NamedTuple):
    """A job, and whether an earlier request with the same key made it."""

    job: Job
    is_replay: bool


class SubmittedJobs(NamedTuple):
    """The jobs of one call, and whether an earlier request with the same key made them."""

    jobs: list[Job]
    is_replay: bool


def submit_job(
    *,
    tenant: Tenant,
    user: User | None,
    spec: Mapping[str, object],
    now: Now,
    key: str | None = None,
    source: str = "api",
) -> SubmittedJob:
    """Submit the job that `spec` writes down (`scheduling.requests.jobs.JobRequest`).

    With an idempotency `key`, the same user's same request finds the job that the first one
    made, at whatever state it is by now.

    Raises:
        tenants.rate.RateError: the tenant submits faster than it may; nothing was looked at.
        InvalidInputError: the specification is wrong; with all findings.
        PendingLimitError: too many jobs of the tenant wait already.
        tenants.idempotency.MismatchError: the key was used with another specification.
        tenants.idempotency.InFlightError: the same request is still being served.
    """
    _take(tenant, ONE)
    asked = KeyedRequest.of(tenant, user, "jobs", key, spec)
    with tenant_scope(tenant.pk):
        uid = uuid.uuid4()
        before = begin_reply(asked, [str(uid)]) if asked else None
        if before is not None:
            stored = Job.objects.select_related("tenant", "pool", "profile")
            return SubmittedJob(stored.get(uid=before[0], tenant=tenant), is_replay=True)
        (read,) = _read_all([spec], tenant, place="")
        _check_budgets(tenant, [read], now, place="")
        _make_room(tenant, 1)
        profiles = _profiles(tenant, [read])
        submitter = _Submitter(tenant, user, source, profiles)
        reading = _reading(now, read.offer)
        _check_deadlines([read], {read.offer.id: reading}, place="")
        job = _job(submitter, read, reading, uid)
        job.save(force_insert=True)
        duration_s = read.request.duration_s
        if duration_s is not None:
            VirtualWork(job=job, duration_us=duration_s * SECOND_US).save(force_insert=True)
        _wake([read.offer])
    return SubmittedJob(job, is_replay=False)


def submit_jobs(
    *,
    tenant: Tenant,
    user: User | None,
    specs: Sequence[object],
    now: Callable[[int], PoolNow],
    key: str | None = None,
    source: str = "api",
) -> SubmittedJobs:
    """Submit all jobs of a list, at most `BULK_MAX`, or none; fields read `jobs[3].gpus`.

    Raises:
        tenants.rate.RateError, InvalidInputError, PendingLimitError, and those of
            `tenants.idempotency`: as `submit_job`.
    """
    if not 1 <= len(specs) <= BULK_MAX:
        raise invalid("jobs", f"must have from 1 to {BULK_MAX} items")
    _take(tenant, BULK)
    asked = KeyedRequest.of(tenant, user, "jobs/bulk", key, specs)
    with tenant_scope(tenant.pk):
        uids = [uuid.uuid4() for _ in specs]
        before = begin_reply(asked, [str(uid) for uid in uids]) if asked else None
        if before is not None:
            stored = Job.objects.select_related("tenant", "pool", "profile").filter(tenant=tenant)
            made = list(stored.filter(uid__in=before).order_by("id"))
            return SubmittedJobs(made, is_replay=True)
        read = _read_all(specs, tenant, place="jobs")
        _check_budgets(tenant, read, now, place="jobs")
        _make_room(tenant, len(read))
        pools = {one.offer.id: one.offer for one in read}
        readings = {pool_id: now(pool_id) for pool_id in pools}
        _check_deadlines(read, readings, place="jobs")
        submitter = _Submitter(tenant, user, source, _profiles(tenant, read))
        jobs = [
            _job(submitter, one, readings[one.offer.id], uid)
            for one, uid in zip(read, uids, strict=True)
        ]
        _insert(jobs, read, [readings[one.offer.id].wall for one in read])
        _wake(pools.values())
    return SubmittedJobs(jobs, is_replay=False)


def _take(tenant: Tenant, cost: float) -> None:
    """Hold the tenant to its rate, by whatever way and process it submits.

    Before the transaction of the submission: else its submissions would wait for each other.
    """
    per_s = float(settings.SUBMISSIONS_PER_S)
    take(f"submit:{tenant.pk}", Rate(per_s, per_s * BURST_S), cost)


class _Accepted(NamedTuple):
    """A request that may be submitted, and the pool that takes it."""

    request: JobRequest
    offer: PoolOffer


def _read_all(specs: Sequence[object], tenant: Tenant, *, place: str) -> list[_Accepted]:
    """Read requests; errors of the third are of `place[2]`, where there is a place."""
    offers: dict[str, PoolOffer | None] = {}
    read: list[_Accepted] = []
    errors = FieldErrors()
    for index, spec in enumerate(specs):
        name = named_pool(spec)
        if name not in offers:
            offers[name] = pool_offer(name, tenant.pk)
        offer = offers[name]
        try:
            request = read_job_request(spec, offer)
        except InvalidInputError as error:
            placed = (one.inside(f"{place}[{index}]") if place else one for one in error.errors)
            errors.extend(placed)
            if len(errors.errors) >= ERRORS_MAX:
                break
        else:
            assert offer is not None  # noqa: S101 - else there were errors
            read.append(_Accepted(request, offer))
    errors.raise_any()
    return read


def _check_deadlines(
    read: Sequence[_Accepted], readings: Mapping[int, PoolNow], *, place: str
) -> None:
    """Refuse deadlines that are over, or too far ahead, by the clocks of the jobs' pools.

    Raises:
        InvalidInputError: there are such deadlines.
    """
    errors = FieldErrors()
    for index, one in enumerate(read):
        own = deadline_errors(one.request, readings[one.offer.id].pool_at)
        errors.extend(error.inside(f"{place}[{index}]") if place else error for error in own)
    errors.raise_any()


def _check_budgets(tenant: Tenant, read: Sequence[_Accepted], now: Now, *, place: str) -> None:
    """Refuse jobs that could only borrow while a budget that blocks is used up.

    Raises:
        InvalidInputError: there are such jobs.
    """
    books = blocking_books(tenant, {one.offer.book for one in read})
    errors = FieldErrors()
    for index, one in enumerate(read):
        if one.offer.book in books:
            error = budget_error(tenant, one.request, one.offer, now)
            if error is not None:
                errors.extend([error.inside(f"{place}[{index}]") if place else error])
    errors.raise_any()


@dataclass(frozen=True, slots=True)
class _Submitter:
    """What all jobs of one call share."""

    tenant: Tenant
    user: User | None
    source: str
    profiles: Mapping[tuple[int, str], Profile]  # by pool and name


def _profiles(tenant: Tenant, read: Sequence[_Accepted]) -> dict[tuple[int, str], Profile]:
    """Hold the profiles that are named, and look at them again under the lock.

    Raises:
        InvalidInputError: one was changed since it was read, or is gone.
    """
    held: dict[tuple[int, str], Profile] = {}
    for pool_id in sorted({one.offer.id for one in read if one.request.profile}):
        wanted = {(tenant.pk, one.request.profile) for one in read if one.request.profile}
        rows = lock_profiles(pool_id, wanted)
        held |= {(pool_id, name): row for (_, name), row in rows.items()}
    for one in read:
        profile, gpu_types = one.request.profile, set(one.request.gpu_types)
        row = held.get((one.offer.id, profile))
        if profile and (row is None or not gpu_types <= set(row.speedups)):
            raise invalid("profile", "was changed just now", "Submit once more.")
    return held


def _job(submitter: _Submitter, accepted: _Accepted, now: PoolNow, uid: uuid.UUID) -> Job:
    request, offer = accepted
    stored = {name: getattr(request, name) for name in stored_fields()}
    return Job(
        **stored
        | {
            "uid": uid,
            "tenant": submitter.tenant,
            "pool_id": offer.id,
            "name": request.name or f"job-{uid.hex[:8]}",
            "submitted_by": submitter.user,
            "submitted_at": now.pool_at,
            "source": submitter.source,
            "command": list(request.command),
            "gpu_types": list(request.gpu_types),
            # No utility is NULL, never an empty object.
            "utility": request.utility or None,
            "profile": submitter.profiles.get((offer.id, request.profile)),
            **_deadline_columns(request, now),
        }
    )


def _deadline_columns(request: JobRequest, now: PoolNow) -> dict[str, object]:
    """The columns that a request says in other words."""
    steps, stop = parsed_steps(request.deadline_steps), parsed_stop(request.stop_when)
    return {
        "deadline_at": deadline_at(request.deadline, now.pool_at),
        "deadline_steps": step_texts(steps) or None,
        "estimate_source": "" if request.estimate_s is None else EstimateSource.DECLARED.value,
        "stop_metric": stop.metric,
        "stop_rule": stop.rule,
        "stop_value": stop.value,
    }


def _insert(jobs: Sequence[Job], read: Sequence[_Accepted], made_at: Sequence[datetime]) -> None:
    """Insert jobs in one statement and give them their ids."""
    for job, pk, at in zip(jobs, next_ids("scheduling_job", len(jobs)), made_at, strict=True):
        job.pk, job.created_at = pk, at
    columns, documents = _columns()
    values_of, documents_of = attrgetter(*columns), attrgetter(*documents)
    insert_rows(
        "scheduling_job",
        (*columns, *documents),
        ((*values_of(job), *map(document, documents_of(job))) for job in jobs),
    )
    insert_rows(
        "scheduling_virtualwork",
        ("job_id", "duration_us", "done_us", "token", "launched_us", "exit_code"),
        (
            (job.pk, one.request.duration_s * SECOND_US, 0, "", None, 0)
            for job, one in zip(jobs, read, strict=True)
            if one.request.duration_s is not None
        ),
    )


@cache
def _columns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a job's row, and those that hold JSON."""
    fields = Job._meta.concrete_fields  # noqa: SLF001 - Django's documented model API
    documents = tuple(one.attname for one in fields if isinstance(one, JSONField))
    return tuple(one.attname for one in fields if one.attname not in documents), documents


def _reading(now: Now, pool: PoolOffer) -> PoolNow:
    return now if isinstance(now, PoolNow) else now(pool.id)


def _make_room(tenant: Tenant, jobs: int) -> None:
    """Hold the tenant to its limit of waiting jobs, exactly, however many submit at once.

    Far below the limit a single job counts without a lock: whatever is in flight beside it, a
    locked bulk and one job per connection, still fits in between.
    """
    limit: int = settings.PENDING_JOBS_MAX
    if jobs == 1 and _pending(tenant) + 2 * BULK_MAX <= limit:
        return
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if _pending(tenant) + jobs > limit:
        raise PendingLimitError(limit)


def _pending(tenant: Tenant) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM scheduling_job WHERE tenant_id = %s AND state = 'pending'",
            [tenant.pk],
        )
        return int(cursor.fetchone()[0])


def _wake(pools: Iterable[PoolOffer]) -> None:
    for pool in pools:
        if pool.on_demand:
            wake_pool_after_commit(pool.id)
