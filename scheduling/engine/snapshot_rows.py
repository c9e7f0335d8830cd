"""Reads rows of jobs, leases and job types for a snapshot, and finds unreadable ones."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from django.db import DataError, NotSupportedError, transaction

from evenshare_core.deadlines.declared import dated_steps, read_steps
from evenshare_core.domain.cluster import Resources
from evenshare_core.domain.deadlines import Deadline, DeadlineClass
from evenshare_core.domain.held_jobs import HeldJob, HoldCode, first_hold
from evenshare_core.domain.job_ranks import KEEPS_PLACE, JobRank
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.measured_speeds import MeasuredProfile
from evenshare_core.domain.offers import lower_limit
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.utilities import Utility, stated_utility
from evenshare_core.domain.values import canonical_bytes, decode
from scheduling.models import Node as NodeRow
from scheduling.models import Profile as ProfileRow
from tenants.scopes import engine_view
from tenants.sql import fetch_rows

_JOBS = """
SELECT id, tenant_id, gpus,
       (extract(epoch FROM coalesce(place_at, eligible_at, submitted_at)) * 1000000)::bigint,
       gpu_types,
       weight, terms, (max_price * 1000000)::bigint,
       (extract(epoch FROM deadline_at) * 1000000)::bigint, estimate_s * 1000000,
       coalesce(profile_id, 0), state,
       (extract(epoch FROM backoff_until) * 1000000)::bigint, losses, cpus, memory_mb,
       utility, job_class, deadline_steps, iterations, stop_metric, profiling_s,
       (extract(epoch FROM submitted_at) * 1000000)::bigint, priority, submitted_by_id
FROM scheduling_job
WHERE pool_id = %s AND state IN ('pending', 'running', 'stopping')
  AND coalesce(eligible_at, submitted_at) <= %s AND cardinality(holds) = 0
  AND quarantine = ''{only}
ORDER BY id
"""
# Also held jobs that were cancelled after the time of the round: they still waited then.
_HELD = """
SELECT id, tenant_id, gpus, holds, (extract(epoch FROM not_before) * 1000000)::bigint
FROM scheduling_job
WHERE pool_id = %(pool)s AND state = 'pending' AND submitted_at <= %(at)s AND quarantine = ''
  AND (cardinality(holds) > 0 OR not_before > %(at)s)
UNION ALL
SELECT id, tenant_id, gpus, holds, (extract(epoch FROM not_before) * 1000000)::bigint
FROM scheduling_job
WHERE pool_id = %(pool)s AND state = 'cancelled' AND ended_at > %(at)s AND quarantine = ''
  AND submitted_at <= %(at)s AND cardinality(holds) > 0
ORDER BY id
"""

_LEASES = """
SELECT l.id, l.job_id, l.tenant_id, t.name, l.placement,
       (extract(epoch FROM coalesce(l.started_at, l.granted_at)) * 1000000)::bigint,
       (extract(epoch FROM l.expires_at) * 1000000)::bigint,
       l.term, l.own, l.borrowed, (l.price * 1000000)::bigint,
       coalesce((extract(epoch FROM l.protected_until) * 1000000)::bigint, 0)
FROM scheduling_lease l JOIN scheduling_gputype t ON t.id = l.gpu_type_id
WHERE l.pool_id = %s AND l.state NOT IN ('ended', 'stopping'){only}
ORDER BY l.id
"""
# Errors that unreadable rows raise, in the database or when their content is decoded.
UNREADABLE = (
    DataError, NotSupportedError, ArithmeticError, AttributeError, LookupError, TypeError,
    ValueError, msgspec.MsgspecError,
)  # fmt: skip # a table


_ALL_JOBS, _ALL_LEASES = _JOBS.format(only=""), _LEASES.format(only="")
_JOB_PROFILES = """
SELECT id, profile_id FROM scheduling_job
WHERE pool_id = %s AND state IN ('pending', 'running', 'stopping')
  AND coalesce(eligible_at, submitted_at) <= %s AND cardinality(holds) = 0 AND quarantine = ''
"""
_LEASE_JOBS = "SELECT id, job_id FROM scheduling_lease WHERE pool_id = %s AND state <> 'ended'"
_JOB_FIELDS = len(Job.__struct_fields__)


class StoredJob(NamedTuple):
    """A row of `_JOBS`: first the fields of the job in their order, then the other columns."""

    job: Job
    state: str
    backoff_until_us: int | None
    losses: int
    cpus: int
    memory_mb: int
    utility: str | None
    job_class: str
    deadline_steps: str | None
    iterations: int | None
    stop_metric: str
    profiling_s: int
    submitted_us: int
    priority: int
    submitted_by: int | None


def active_jobs(pool_id: int, at: datetime) -> list[StoredJob]:
    """Return the jobs of a round at `at`, in order of their ids."""
    return [_stored_job(row) for row in fetch_rows(_ALL_JOBS, [pool_id, at])]


class RankedJob(NamedTuple):
    """The facts that decide a job's rank within its tenant.

    `keeps_place`: it takes no part in the exchange of places.
    """

    job: int
    tenant: int
    priority: int
    submitted_by: int | None
    keeps_place: bool


def ranked_jobs(rows: Iterable[StoredJob]) -> list[RankedJob]:
    """Return jobs for `job_ranks`; their price limits are their own, not those of tenants."""
    return [
        RankedJob(
            row.job.id,
            row.job.tenant,
            row.priority,
            row.submitted_by,
            keeps_place(row.job.max_price_micro, row.utility),
        )
        for row in rows
    ]


def keeps_place(own_price: object, utility: object) -> bool:
    """Return whether a job with this price limit and utility takes no part in the exchange.

    A utility may fall from the arrival on. A job below the posted price never starts, so it could
    keep an early place for later jobs.
    """
    return own_price is not None or utility is not None


def job_ranks(rows: Iterable[RankedJob], sharing: Collection[int]) -> tuple[JobRank, ...]:
    """Return the ranks of jobs by which their tenants order them, in the given order.

    `sharing`: the tenants whose people share equally. People are numbered from 1 within a tenant.
    """
    rows = list(rows)
    people: dict[int, list[int]] = {}
    for row in rows:
        if row.tenant in sharing:
            people.setdefault(row.tenant, []).append(row.submitted_by or 0)
    numbers = {
        (tenant, one): number
        for tenant, ones in people.items()
        for number, one in enumerate(sorted(set(ones)), 1)
    }
    ordering = people.keys() | {row.tenant for row in rows if row.priority}
    ranks = (
        JobRank(
            row.job,
            KEEPS_PLACE if row.keeps_place else row.priority,
            numbers.get((row.tenant, row.submitted_by or 0), 0),
        )
        for row in rows
        if row.tenant in ordering
    )
    return tuple(rank for rank in ranks if rank.priority or rank.person)


def held_jobs(pool_id: int, at: datetime) -> tuple[HeldJob, ...]:
    """Return the waiting jobs that may not start at `at`, in order of their ids."""
    return tuple(_held_job(*row) for row in fetch_rows(_HELD, {"pool": pool_id, "at": at}))


def _held_job(
    job: int, tenant: int, gpus: int, codes: Collection[str], not_before_us: int | None
) -> HeldJob:
    if codes:
        return HeldJob(job, tenant, gpus, first_hold(codes))
    return HeldJob(job, tenant, gpus, HoldCode.NOT_BEFORE, not_before_us or 0)


def _stored_job(row: tuple[Any, ...]) -> StoredJob:
    job, rest = row[:_JOB_FIELDS], row[_JOB_FIELDS:]
    id_, tenant, gpus, submitted_us, gpu_types, *more = job
    if None in gpu_types:
        raise ValueError("a GPU type has no name")
    return StoredJob(Job(id_, tenant, gpus, submitted_us, tuple(gpu_types), *more), *rest)


def with_price_limits(rows: Sequence[StoredJob], limits: Mapping[int, int]) -> Sequence[StoredJob]:
    """Return the jobs by id, with their price limits lowered to those of their tenants."""
    if not limits:
        return rows

    def limited(job: Job) -> Job:
        price = lower_limit(job.max_price_micro, limits.get(job.tenant))
        return msgspec.structs.replace(job, max_price_micro=price)

    return [row._replace(job=limited(row.job)) for row in rows]


def live_leases(pool_id: int) -> tuple[Lease, ...]:
    """Return the leases that hold or will hold GPUs and are not stopping, in order of ids."""
    return tuple(_lease(row) for row in fetch_rows(_ALL_LEASES, [pool_id]))


def node_resources(pool_id: int) -> tuple[Resources, ...]:
    """Return CPUs and memory of the nodes that declare them, in order of id, down or not."""
    rows = NodeRow.objects.filter(pool_id=pool_id).exclude(cpus=0, memory_mb=0).order_by("id")
    return tuple(Resources(*row) for row in rows.values_list("id", "cpus", "memory_mb"))


def job_resources(rows: Iterable[StoredJob]) -> tuple[Resources, ...]:
    """Return the jobs' declared CPUs and memory, in the given order; skip jobs without any."""
    return tuple(
        Resources(row.job.id, row.cpus, row.memory_mb) for row in rows if row.cpus or row.memory_mb
    )


def job_utilities(rows: Iterable[StoredJob]) -> tuple[Utility, ...]:
    # In raw cursors, Django returns jsonb as text.
    utilities = (
        stated_utility(row.job.id, msgspec.json.decode(row.utility))
        for row in rows
        if row.utility is not None
    )
    return tuple(utility for utility in utilities if utility is not None)


def job_deadlines(rows: Iterable[StoredJob]) -> tuple[Deadline, ...]:
    return tuple(
        _deadline_of(row)
        for row in rows
        if row.job.deadline_us is not None or row.job_class != DeadlineClass.BEST_EFFORT
    )


def _deadline_of(row: StoredJob) -> Deadline:
    job = row.job
    if job.deadline_us is None:
        raise ValueError(f"it is of the class {row.job_class} and has no deadline")
    kind, said = DeadlineClass(row.job_class), row.deadline_steps
    # In raw cursors, Django returns jsonb as text.
    declared = () if said is None else read_steps(msgspec.json.decode(said))
    # The steps are shares of the time from the submission, even if the job was held since then.
    steps = dated_steps(row.submitted_us, job.deadline_us, kind, declared)
    return Deadline(job.id, kind, steps)


def _lease(row: tuple[Any, ...]) -> Lease:
    id_, job, tenant, gpu_type, placement, *more = row
    # In raw cursors, Django returns jsonb as text.
    held = tuple((node, gpus) for node, gpus in msgspec.json.decode(placement))
    return Lease(id_, job, tenant, gpu_type, held, *more)


def read_profiles(wanted: Collection[int]) -> tuple[Profile, ...]:
    """Return the profiles of the round's jobs."""
    return read_measured_profiles(wanted)[0]


def read_measured_profiles(
    wanted: Collection[int],
) -> tuple[tuple[Profile, ...], tuple[MeasuredProfile, ...]]:
    """Return the profiles of the round's jobs, and their measured profiles, in one query."""
    rows = list(ProfileRow.objects.filter(pk__in=wanted).order_by("id"))
    read = tuple(
        Profile(row.pk, row.tenant_id, tuple(sorted(row.speedups.items())), row.priority)
        for row in rows
    )
    measured = tuple(
        MeasuredProfile(
            row.pk, tuple(sorted(row.as_declared.items())), tuple(sorted(row.as_measured.items()))
        )
        for row in rows
        if row.measured
    )
    # JSON can hold any value, and a policy would fail on one that is not a number.
    numbers = [milli for profile in read for _, milli in profile.speedups]
    numbers += [milli for one in measured for _, milli in one.declared]
    numbers += [number for one in measured for _, speed in one.measured for number in speed]
    if not all(type(number) is int for number in numbers):
        raise TypeError("a speed of a job type is no whole number")
    return read, measured


def unreadable_jobs(pool_id: int, at: datetime) -> dict[int, str]:
    """Return the jobs that make the snapshot of `at` fail, with the reasons; empty if none.

    The cause is the row of the job, of its lease or of its job type. The search takes about 2
    log2(jobs) queries per such job.
    """
    with engine_view(pool_id):
        jobs = dict(fetch_rows(_JOB_PROFILES, [pool_id, at]))
        leases = dict(fetch_rows(_LEASE_JOBS, [pool_id]))
        bad = _failing(sorted(jobs), lambda ids: _read_jobs(pool_id, at, ids))
        of_leases = _failing(sorted(leases), lambda ids: _read_leases(pool_id, ids))
        profiles = sorted({one for one in jobs.values() if one is not None})
        of_profiles = _failing(profiles, _read_job_types)
    bad |= {leases[lease]: why for lease, why in of_leases.items()}
    bad |= {job: of_profiles[one] for job, one in jobs.items() if one in of_profiles}
    return bad


def _failing(ids: Sequence[int], read: Callable[[Sequence[int]], object]) -> dict[int, str]:
    """Return the rows that cannot be read, with the reasons, by bisection."""
    if not ids:
        return {}
    try:
        with transaction.atomic():
            read(ids)
    except UNREADABLE as error:
        if len(ids) == 1:
            return {ids[0]: f"{type(error).__name__}: {error}".splitlines()[0]}
        half = len(ids) // 2
        return _failing(ids[:half], read) | _failing(ids[half:], read)
    return {}


def _read_jobs(pool_id: int, at: datetime, ids: Sequence[int]) -> None:
    query = _JOBS.format(only=" AND id = ANY(%s)")
    for row in fetch_rows(query, [pool_id, at, list(ids)]):
        # Encode and decode the rows as a replay does: a job for which this fails must not enter a
        # round.
        stored = _stored_job(row)
        decode(canonical_bytes(stored.job), Job)
        job_utilities([stored])
        for deadline in job_deadlines([stored]):
            decode(canonical_bytes(deadline), Deadline)


def _read_job_types(ids: Sequence[int]) -> None:
    for rows in read_measured_profiles(ids):
        canonical_bytes(rows)


def _read_leases(pool_id: int, ids: Sequence[int]) -> None:
    query = _LEASES.format(only=" AND l.id = ANY(%s)")
    for row in fetch_rows(query, [pool_id, list(ids)]):
        decode(canonical_bytes(_lease(row)), Lease)
