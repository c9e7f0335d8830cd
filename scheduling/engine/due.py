"""Due rounds and their order, computed from rows in PostgreSQL."""

from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db.models import DateTimeField, Func, Q

from scheduling.engine.clock import pool_time, round_late_s
from scheduling.models import Job, Pool
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DueRound:
    """A pool whose round is due, or requested between two grid instants (`on_demand`).

    `intervals_late`: how late the round is, in round intervals of wall time; 0 if it is only
    requested. After a failure it counts from the failure, so that a failing pool delays no other
    pool.
    """

    pool_id: int
    pool: str
    on_demand: bool
    intervals_late: float


def due_rounds(asked: int | None = None) -> list[DueRound]:
    """Return the due rounds, most late first; lateness is measured in each pool's round intervals.

    `asked`: a pool for which a round on demand was requested. A pool that cannot be read is logged
    and left out. Runs one query, and one more for each pool that is not due but allows rounds on
    demand.
    """
    wall = Func(function="clock_timestamp", output_field=DateTimeField())
    pools = Pool.objects.select_related("clock", "fence", "failure").annotate(wall=wall)
    rows = []
    for pool in pools.order_by("id"):
        try:
            due = _due(pool, asked)
        except Exception:
            log.exception("due.failed", pool=pool.name)
            continue
        if due is not None:
            rows.append(due)
    return sorted(rows, key=lambda due: (-due.intervals_late, due.pool_id))


def _due(pool: Pool, asked: int | None) -> DueRound | None:
    wall = pool.wall  # type: ignore[attr-defined]  # annotated
    if pool.clock.paused:
        return None
    late_s = round_late_s(pool.clock, wall, pool.fence.last_checked_at, pool.round_s)
    if late_s is None:
        wanted = pool.on_demand and (pool.pk == asked or _is_wanted(pool, wall))
        return DueRound(pool.pk, pool.name, on_demand=True, intervals_late=0.0) if wanted else None
    failure = getattr(pool, "failure", None)
    if failure is not None:
        late_s = min(late_s, max(0.0, (wall - failure.at).total_seconds()))
    return DueRound(pool.pk, pool.name, on_demand=False, intervals_late=late_s / pool.round_s)


def _is_wanted(pool: Pool, wall: datetime) -> bool:
    """Return whether a job was submitted, released or cancelled, or became ready, since the check.

    Most of these changes also request a round; this check finds the job if the request was lost.
    Only this check notices that a job's earliest start has come.
    """
    checked, now = pool.fence.last_checked_at, pool_time(pool.clock, wall)
    jobs = Job.objects.filter(pool=pool, state__in=Job.ACTIVE_STATES)
    with engine_scope(pool.pk):
        return jobs.filter(
            Q(submitted_at__gt=checked)
            | Q(cancel_asked_at__gt=checked)
            | Q(eligible_at__gt=checked, eligible_at__lte=now)
        ).exists()
