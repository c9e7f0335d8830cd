"""Preemptions of a job, and of a tenant since an instant, with the GPU-time that they cost.

A preemption is a lease that started and that a round ended or did not renew, although its job had
work left. A lease whose job got other GPUs in the same round was moved. Lost processes and drained
nodes are neither.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, NamedTuple

from evenshare_core.units import SECOND_US
from scheduling.models import Job, Measurement, Profile
from tenants.answers import Answer, about
from tenants.sql import fetch_rows

# Ends by which a round takes the GPUs of a job.
TAKEN = (
    *("preempted", "moved", "not_renewed"),
    *("price_above_max", "price_above_value", "budget"),
)
# Of these, ends before the expiry of the lease, with notice.
EARLY = ("preempted", "moved")


class PreemptionCost(Answer, frozen=True, kw_only=True):
    """Preemptions of a job or a tenant, and the GPU-time lost by them. Times are pool time."""

    preemptions: Annotated[int, about("Leases whose GPUs a round took, except for moves.")]
    early: Annotated[int, about("Of these, before the expiry of the lease, with notice.")]
    moves: Annotated[int, about("Leases that a round ended to continue on other GPUs.")]
    restarts: Annotated[int, about("Starts after a preemption or a move.")]
    restart_gpu_s: Annotated[
        float | None,
        about("Restarts x measured time to suspend and resume x GPUs; null: unknown."),
    ]
    work_lost_gpu_s: Annotated[
        float | None, about("Work after the last checkpoint before a preemption; null: unknown.")
    ]


class _TakenLeases(NamedTuple):
    """Leases that rounds took, of jobs with one job type and number of GPUs."""

    profile: int | None
    gpus: int
    preemptions: int
    early: int
    moves: int
    restarts: int


# In a move, the next lease is granted by the round that ends the first one. The next lease of a
# lease that ended in the period still runs, or ended in the period too.
_SUMS = """
SELECT {profile}, l.gpus, count(*) FILTER (WHERE NOT l.is_move),
       count(*) FILTER (WHERE NOT l.is_move AND l.end_reason = ANY(%(early)s)),
       count(*) FILTER (WHERE l.is_move), count(*) FILTER (WHERE l.is_resumed)
FROM (
    SELECT o.job_id, o.gpus, o.end_reason, o.started_at, o.ended_at,
           coalesce(lead(o.granted_at) OVER later <= o.ended_at, false) AS is_move,
           coalesce(bool_or(o.started_at IS NOT NULL) OVER (
               later ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), false) AS is_resumed
    FROM scheduling_lease o
    WHERE {which}
    WINDOW later AS (PARTITION BY o.job_id ORDER BY o.number)
) l
{join}
WHERE l.end_reason = ANY(%(taken)s) AND l.started_at IS NOT NULL AND l.ended_at IS NOT NULL
GROUP BY 1, 2
"""
_OF_JOB = "o.job_id = %(job)s"
_OF_TENANT = (
    "o.pool_id = %(pool)s AND o.tenant_id = %(tenant)s"
    " AND (o.ended_at >= %(since)s OR o.ended_at IS NULL)"
)


def read_job_cost(job: Job, *, simulates: bool) -> PreemptionCost:
    """Return the preemptions of a job and their cost; `simulates`: no process runs. Two queries."""
    return _cost(_taken(_OF_JOB, simulates=simulates, job=job.pk), simulates=simulates)


def read_tenant_cost(
    pool_id: int, tenant_id: int, *, since: datetime, simulates: bool
) -> PreemptionCost:
    """Return the preemptions of a tenant's jobs in a pool since an instant, and their cost."""
    given = {"pool": pool_id, "tenant": tenant_id, "since": since}
    rows = _taken(_OF_TENANT, simulates=simulates, **given)
    return _cost(rows, simulates=simulates)


def read_restart_s(profiles: Iterable[int]) -> dict[int, float]:
    """Return the measured seconds to suspend and resume, by job type. At most one query.

    Job types that were never seen to resume are left out.
    """
    wanted = sorted(set(profiles))
    if not wanted:
        return {}
    kinds = (Measurement.Kind.RESUME, Measurement.Kind.SUSPEND)
    rows = Measurement.objects.filter(profile__in=wanted, kind__in=kinds, used_reports__gt=0)
    sums: dict[int, int] = {}
    resumed = set()
    for profile, kind, mean_us in rows.values_list("profile_id", "kind", "used_mean"):
        sums[profile] = sums.get(profile, 0) + mean_us
        if kind == Measurement.Kind.RESUME:
            resumed.add(profile)
    return {profile: sums[profile] / SECOND_US for profile in resumed}


def read_pool_restart_s(pool_id: int) -> list[float]:
    """Return the measured seconds to suspend and resume of a pool's job types. Two queries."""
    profiles = Profile.objects.filter(pool_id=pool_id).values_list("pk", flat=True)
    return sorted(read_restart_s(profiles).values())


def _taken(which: str, *, simulates: bool, **given: object) -> list[_TakenLeases]:
    """Return the leases that a condition selects; without job types if `simulates`."""
    join = "" if simulates else "JOIN scheduling_job j ON j.id = l.job_id"
    profile = "NULL::bigint" if simulates else "j.profile_id"
    query = _SUMS.format(which=which, join=join, profile=profile)
    rows = fetch_rows(query, {**given, "taken": list(TAKEN), "early": list(EARLY)})
    return [_TakenLeases(*row) for row in rows]


def _cost(rows: list[_TakenLeases], *, simulates: bool) -> PreemptionCost:
    return PreemptionCost(
        preemptions=sum(row.preemptions for row in rows),
        early=sum(row.early for row in rows),
        moves=sum(row.moves for row in rows),
        restarts=sum(row.restarts for row in rows),
        restart_gpu_s=0.0 if simulates else _restart_gpu_s(rows),
        work_lost_gpu_s=0.0 if simulates or not rows else None,
    )


def _restart_gpu_s(rows: list[_TakenLeases]) -> float | None:
    restarted = [row for row in rows if row.restarts]
    times = read_restart_s(row.profile for row in restarted if row.profile)
    if any(row.profile not in times for row in restarted):
        return None
    return sum(times[row.profile or 0] * row.restarts * row.gpus for row in restarted)
