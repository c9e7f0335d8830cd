"""Leases written off because the engine does not end them, and processes without a lease.

The operator declares that a process is gone, so the engine is not queried here. The lease ends at
the time at which its stop was due, with the reason of the stop. An end that an engine reports late
is recorded in the same way. If the engine lists the process later, it is an orphan.

Source: docs/executors.md.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

import structlog

from evenshare_core.domain.instants import to_us
from scheduling.engine.breaker import GuardedExecutor
from scheduling.engine.clock import wall_now
from scheduling.engine.executors.base import OVER, Report, ReportState, lease_token
from scheduling.engine.fence import lock_fence
from scheduling.engine.observe import observe
from scheduling.engine.revoke import withdraw_waiting
from scheduling.models import ExecutorHealth, Intent, Pool
from scheduling.selectors.operate.overdue import open_stops, stop_due
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)


def end_written_off(
    executor: GuardedExecutor, pool: Pool, token: int, reports: Sequence[Report], *, at: datetime
) -> list[str]:
    """End the leases that an operator wrote off; return their tokens.

    If the executor reports an end, the reported end is recorded instead.
    """
    installation, health = executor.installation, executor.health
    asked = list(health.written_off) if health is not None else []
    if not asked:
        return []
    over = {report.token for report in reports if report.state in OVER}
    with engine_scope(pool.pk):
        rows = open_stops([pool.pk])
    stops = {lease_token(one.lease.job_id, one.lease.number, installation): one for one in rows}
    ends = {one: stops[one] for one in asked if one in stops and one not in over}
    if ends:
        log.warning("executor.written_off", pool=pool.name, tokens=sorted(ends))
        leases = [intent.lease_id for intent in ends.values()]
        withdraw_waiting(pool.pk, token, leases, at=at)
        ended = [_end(one, intent, at) for one, intent in ends.items()]
        observe(pool.pk, token, ended, installation=installation, at=at, are_written_off=True)
    _drop(pool, token, asked)
    return list(ends)


def note_orphans(
    pool: Pool, health: ExecutorHealth | None, token: int, orphans: Collection[str]
) -> None:
    """Record the processes that run after their lease's end, and when each was first noticed."""
    known = health.orphans if health is not None else {}
    if set(known) == set(orphans):
        return
    now = wall_now().isoformat()
    with engine_scope(pool.pk):
        lock_fence(pool.pk, token)
        ExecutorHealth.objects.get_or_create(pool=pool)
        row = ExecutorHealth.objects.select_for_update().get(pool=pool)
        row.orphans = {one: row.orphans.get(one, now) for one in sorted(orphans)}
        row.save(update_fields=["orphans"])


def _end(token: str, stop: Intent, at: datetime) -> Report:
    """Report that the lease ended when its stop was due; a lease that never started is free."""
    due_us = to_us(min(stop_due(stop), at))
    started_at = stop.lease.started_at
    started_us = due_us if started_at is None else to_us(started_at)
    return Report(token, ReportState.STOPPED, started_us, due_us)


def _drop(pool: Pool, token: int, asked: Collection[str]) -> None:
    """Delete the write-offs that were carried out. The next round handles newer ones."""
    with engine_scope(pool.pk):
        lock_fence(pool.pk, token)
        row = ExecutorHealth.objects.select_for_update().get(pool=pool)
        row.written_off = [one for one in row.written_off if one not in asked]
        row.save(update_fields=["written_off"])
