"""Submits jobs. An accepted one is in Postgres before anybody is told so."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

import msgspec
from django.conf import settings
from django.db import connection

from evenshare_core.units import SECOND_US
from scheduling.engine.bulk import copy_rows, next_ids
from scheduling.engine.clock import PoolNow
from scheduling.engine.profiles import lock_profiles
from scheduling.models import Job, Profile, VirtualWork
from scheduling.selectors.offers import PoolOffer, pool_offer
from scheduling.services.spec import JobSpec, pool_named, read_spec
from scheduling.services.wake import wake_pool_after_commit
from tenants.idempotency import Request, begin_reply
from tenants.input.errors import ERRORS_MAX, FieldErrors, InvalidInputError, invalid
from tenants.models import Tenant, User
from tenants.scopes import tenant_scope

BULK_MAX = 1000
# The reading of the clock of the job's pool, or what reads it once the pool is known.
Now = PoolNow | Callable[[int], PoolNow]


class PendingLimitError(Exception):
    """The tenant has as many waiting jobs as it may have; nothing was submitted."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a tenant may have {limit} waiting jobs")
        self.limit = limit


def submit_job(
    *,
    tenant: Tenant,
    user: User | None,
    spec: Mapping[str, object],
    now: Now,
    key: str | None = None,
    source: str = "api",
) -> Job:
    """Submit the job that `spec` writes down (`scheduling.services.spec`); return it.

    With an idempotency `key`, the same user's same request finds the job that the first one
    made, at whatever state it is by now.

    Raises:
        InvalidInputError: the specification is wrong; with all findings.
        PendingLimitError: too many jobs of the tenant wait already.
        tenants.idempotency.MismatchError: the key was used with another specification.
        tenants.idempotency.InFlightError: the same request is still being served.
    """
    asked = Request.of(tenant, user, "jobs", key, spec)
    with tenant_scope(tenant.pk):
        uid = uuid.uuid4()
        before = begin_reply(asked, [str(uid)]) if asked else None
        if before is not None:
            found = Job.objects.select_related("tenant", "pool", "profile")
            return found.get(uid=before[0], tenant=tenant)
        read = read_spec(spec, pool_offer(pool_named(spec), tenant.pk))
        _make_room(tenant, 1)
        profiles = _profiles(tenant, [read])
        job = _job(_Draft(tenant, user, source, profiles), read, _reading(now, read.pool), uid)
        job.save(force_insert=True)
        if read.duration_s is not None:
            VirtualWork(job=job, duration_us=read.duration_s * SECOND_US).save(force_insert=True)
        _wake([read.pool])
    return job


def submit_jobs(
    *,
    tenant: Tenant,
    user: User | None,
    specs: Sequence[object],
    now: Callable[[int], PoolNow],
    key: str | None = None,
    source: str = "api",
) -> list[Job]:
    """Submit all jobs of a list, at most `BULK_MAX`, or none; fields read `jobs[3].gpus`.

    Raises:
        InvalidInputError, PendingLimitError, and those of `tenants.idempotency`, as `submit_job`.
    """
    if not 1 <= len(specs) <= BULK_MAX:
        raise invalid("jobs", f"must have from 1 to {BULK_MAX} items")
    asked = Request.of(tenant, user, "jobs/bulk", key, specs)
    with tenant_scope(tenant.pk):
        uids = [uuid.uuid4() for _ in specs]
        before = begin_reply(asked, [str(uid) for uid in uids]) if asked else None
        if before is not None:
            found = Job.objects.select_related("tenant", "pool", "profile").filter(tenant=tenant)
            return list(found.filter(uid__in=before).order_by("id"))
        read = _read_all(specs, tenant)
        _make_room(tenant, len(read))
        pools = {spec.pool.id: spec.pool for spec in read}
        readings = {pool_id: now(pool_id) for pool_id in pools}
        draft = _Draft(tenant, user, source, _profiles(tenant, read))
        jobs = [
            _job(draft, spec, readings[spec.pool.id], uid)
            for spec, uid in zip(read, uids, strict=True)
        ]
        _insert(jobs, read, [readings[spec.pool.id].wall for spec in read])
        _wake(pools.values())
    return jobs


def _read_all(specs: Sequence[object], tenant: Tenant) -> list[JobSpec]:
    offers: dict[str, PoolOffer | None] = {}
    read: list[JobSpec] = []
    errors = FieldErrors()
    for index, spec in enumerate(specs):
        name = pool_named(spec)
        if name not in offers:
            offers[name] = pool_offer(name, tenant.pk)
        try:
            read.append(read_spec(spec, offers[name]))
        except InvalidInputError as error:
            errors.extend(one.inside(f"jobs[{index}]") for one in error.errors)
        if len(errors.errors) >= ERRORS_MAX:
            break
    errors.raise_any()
    return read


@dataclass(frozen=True, slots=True)
class _Draft:
    """What all jobs of one request share."""

    tenant: Tenant
    user: User | None
    source: str
    profiles: Mapping[tuple[int, str], Profile]  # by pool and name


def _profiles(tenant: Tenant, read: Sequence[JobSpec]) -> dict[tuple[int, str], Profile]:
    """Hold the profiles that are named, and look at them again under the lock.

    Raises:
        InvalidInputError: one was changed since it was read, or is gone.
    """
    held: dict[tuple[int, str], Profile] = {}
    for pool_id in sorted({spec.pool.id for spec in read if spec.profile}):
        wanted = {(tenant.pk, spec.profile) for spec in read if spec.profile}
        rows = lock_profiles(pool_id, wanted)
        held |= {(pool_id, name): row for (_, name), row in rows.items()}
    for spec in read:
        row = held.get((spec.pool.id, spec.profile))
        if spec.profile and (row is None or not set(spec.gpu_types) <= set(row.speedups)):
            raise invalid("profile", "was changed just now", "Submit once more.")
    return held


def _job(draft: _Draft, spec: JobSpec, now: PoolNow, uid: uuid.UUID) -> Job:
    return Job(
        uid=uid,
        tenant=draft.tenant,
        pool_id=spec.pool.id,
        name=spec.name or f"job-{uid.hex[:8]}",
        submitted_by=draft.user,
        submitted_at=now.pool_at,
        source=draft.source,
        command=list(spec.command),
        environment=dict(spec.environment),
        gpus=spec.gpus,
        gpus_min=spec.gpus,
        gpus_max=spec.gpus,
        gpu_types=list(spec.gpu_types),
        profile=draft.profiles.get((spec.pool.id, spec.profile)),
        max_price=spec.max_price,
        weight=spec.weight,
    )


# Every column of a job but those of what happens to it later, which have the model's defaults.
_SPEC_COLUMNS = (
    *("uid", "tenant_id", "pool_id", "name", "submitted_by_id", "submitted_at", "source"),
    *("gpus", "gpus_min", "gpus_max", "gpu_types", "profile_id", "weight", "max_price"),
)
_DEFAULT_COLUMNS = (
    *("cpus", "memory_mb", "job_class", "deadline_at", "estimate_s", "estimate_source"),
    *("state", "reason_code", "reason_round", "terms", "leases_held", "first_started_at"),
    *("ended_at", "exit_code", "cancel_asked_at", "quarantine", "version", "utility", "progress"),
)
_json = msgspec.json.Encoder().encode


def _insert(jobs: Sequence[Job], read: Sequence[JobSpec], made_at: Sequence[datetime]) -> None:
    """Insert jobs by COPY and give them their ids; four times as fast as one long INSERT."""
    for job, pk in zip(jobs, next_ids("scheduling_job", len(jobs)), strict=True):
        job.pk = pk
    spec_of, default_of = attrgetter(*_SPEC_COLUMNS), attrgetter(*_DEFAULT_COLUMNS)
    copy_rows(
        "scheduling_job",
        ("id", "created_at", "command", "environment", *_SPEC_COLUMNS, *_DEFAULT_COLUMNS),
        (
            (
                *(job.pk, at, _json(job.command).decode(), _json(job.environment).decode()),
                *(*spec_of(job), *default_of(job)),
            )
            for job, at in zip(jobs, made_at, strict=True)
        ),
    )
    copy_rows(
        "scheduling_virtualwork",
        ("job_id", "duration_us", "done_us", "token", "launched_us", "exit_code"),
        (
            (job.pk, spec.duration_s * SECOND_US, 0, "", None, 0)
            for job, spec in zip(jobs, read, strict=True)
            if spec.duration_s is not None
        ),
    )


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
            wake_pool_after_commit(pool.id, expires_s=pool.round_s)
