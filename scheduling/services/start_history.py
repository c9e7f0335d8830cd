"""The history of a pool for simulating its next hours: durations of jobs, and submissions."""

from datetime import datetime, timedelta

from django.db.models import Q

from evenshare_core.domain.cluster import Resources
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.offers import lower_limit
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.simulation.starts import EndedJob, History
from evenshare_core.units import HOUR_US, ONE_MILLI, SECOND_US
from scheduling.engine.snapshot_rows import read_profiles
from scheduling.models import Job as JobRow
from scheduling.selectors.jobs.estimates import read_works_us
from scheduling.selectors.jobs.past_work import utility_of
from scheduling.selectors.sharing.settings import price_limits
from tenants.sql import fetch_rows

ENDED_MOST = ARRIVALS_MOST = 2_000
SPAN = timedelta(hours=24)
# over a shorter span, simulations would repeat a new pool's first jobs too often
LEAST_SPAN_US = HOUR_US

# SQL: the latest ended jobs, and how long each held GPUs of each type.
_ENDED = """
SELECT j.id, j.tenant_id, j.estimate_s, coalesce(j.profile_id, 0), t.name,
       sum(extract(epoch FROM l.ended_at - l.started_at) * 1000000)::bigint
FROM (SELECT id, tenant_id, estimate_s, profile_id FROM scheduling_job
      WHERE pool_id = %s AND state IN ('succeeded', 'failed') AND ended_at <= %s
      ORDER BY ended_at DESC LIMIT %s) j
JOIN scheduling_lease l ON l.job_id = j.id
JOIN scheduling_gputype t ON t.id = l.gpu_type_id
WHERE l.started_at IS NOT NULL AND l.ended_at IS NOT NULL
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1
"""


def read_history(pool_id: int, at: datetime) -> History:
    """Return the jobs that ended before a pool time, and the submissions of the day before it.

    At most eight queries. Jobs that were cancelled before they started count as never submitted.
    Submitted jobs get the estimates that rounds would use now.
    """
    ended = _ended(pool_id, at)
    rows = (
        JobRow.objects.filter(pool_id=pool_id, submitted_at__gt=at - SPAN, submitted_at__lte=at)
        .exclude(state=JobRow.State.CANCELLED, first_started_at=None)
        .filter(Q(eligible_at=None) | Q(eligible_at__lte=at), holds=[])
        .select_related("profile")
        .order_by("-submitted_at", "-id")[:ARRIVALS_MOST]
    )
    limits = price_limits(pool_id)
    works_us = read_works_us(list(rows))
    arrivals = tuple(
        _arrival(row, limits.get(row.tenant_id), works_us.get(row.pk)) for row in reversed(rows)
    )
    since_us = arrivals[0].submitted_us if arrivals else to_us(at)
    is_whole = len(arrivals) < ARRIVALS_MOST and _is_older(pool_id, at - SPAN)
    span_us = to_us(at) - (to_us(at - SPAN) if is_whole else since_us)
    resources = {
        row.pk: Resources(row.pk, row.cpus, row.memory_mb)
        for row in rows
        if row.cpus or row.memory_mb
    }
    said = {row.pk: utility_of(row) for row in rows}
    utilities = {job: utility for job, utility in said.items() if utility is not None}
    return History(ended, arrivals, max(LEAST_SPAN_US, span_us), resources, utilities)


def _is_older(pool_id: int, since: datetime) -> bool:
    return JobRow.objects.filter(pool_id=pool_id, submitted_at__lte=since).exists()


def _arrival(row: JobRow, price_limit: int | None, work_us: int | None) -> Job:
    return Job(
        row.pk,
        row.tenant_id,
        row.gpus,
        to_us(row.arrived_at),
        tuple(sorted(row.gpu_types)),
        row.weight,
        max_price_micro=lower_limit(
            None if row.max_price is None else to_micro(row.max_price), price_limit
        ),
        estimate_us=work_us,
        profile=row.profile_id or 0,
    )


def _ended(pool_id: int, at: datetime) -> tuple[EndedJob, ...]:
    rows = fetch_rows(_ENDED, [pool_id, at, ENDED_MOST])
    profiles = {row.id: row for row in read_profiles({row[3] for row in rows} - {0})}
    work: dict[int, EndedJob] = {}
    for job_id, tenant, estimate_s, profile, gpu_type, held_us in rows:
        known = profiles.get(profile)
        speed = known.speed_milli(gpu_type) if known else ONE_MILLI
        estimate_us = None if estimate_s is None else estimate_s * SECOND_US
        sofar = work.get(job_id, EndedJob(tenant, 0, estimate_us))
        work[job_id] = sofar._replace(work_us=sofar.work_us + held_us * speed // ONE_MILLI)
    return tuple(row for row in work.values() if row.work_us > 0)
