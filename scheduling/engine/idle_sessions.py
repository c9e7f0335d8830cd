"""Warns the users of idle sessions, and ends their leases when these expire.

A session is warned at least `lead_s` before its end. Its server reports in a file when it was
used. So a job can keep its session alive, at its own charge. Idle times are wall time, because they
are those of a person; `scale` converts them to the pool's clock.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from evenshare_core.domain.instants import to_us
from scheduling.engine.clock import wall_now
from scheduling.engine.events import EventLog
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.session_files import idle_limit_s, read_session
from scheduling.engine.fence import lock_fence
from scheduling.engine.revoke import revoke_idle
from scheduling.models import Job, Lease, LeaseEvent, Pool
from tenants.scopes import engine_scope

LEAD_S = 300

log = structlog.get_logger(__name__)


class _UnusedSession(NamedTuple):
    """A lease whose session was not used after `since` (pool time)."""

    lease: Lease
    since: datetime


def lead_s(job: Job) -> int:
    """Return how long before its end, in seconds, an idle session is warned."""
    return min(LEAD_S, idle_limit_s(job) // 2)


def follow_sessions(pool: Pool, token: int, *, at: datetime, scale: int) -> None:
    """Warn idle sessions, and end the leases of those that were warned and have expired.

    Raises:
        FencedError: another holder has taken the pool.
    """
    if not executor_traits(pool.executor).keeps_files:
        return
    with engine_scope(pool.pk):
        unused = _unused(pool, at, scale)
        if not unused:
            return
        warned = _warned(unused)
        fresh = [one for one in unused if one.lease.pk not in warned]
        if fresh:
            _warn(pool, token, fresh, at)
    over = [
        lease.pk
        for lease, since in unused
        if lease.pk in warned
        and since + timedelta(seconds=idle_limit_s(lease.job)) * scale <= at
        and warned[lease.pk] + timedelta(seconds=lead_s(lease.job)) * scale <= at
    ]
    if over:
        revoke_idle(pool.pk, token, over, at=at)


def _unused(pool: Pool, at: datetime, scale: int) -> list[_UnusedSession]:
    """Return the leases of sessions for which a warning is due, or was due before."""
    leases = Lease.objects.filter(
        pool=pool, state=Lease.State.RUNNING, job__session__gt="", started_at__isnull=False
    )
    unused = []
    for lease in leases.select_related("job").order_by("id"):
        report = read_session(lease.job_id, lease.number)
        # A program that never serves is unused since its start.
        since = lease.started_at or at
        if report is not None:
            since = max(since, at - timedelta(seconds=report.unused_s) * scale)
        wait_s = idle_limit_s(lease.job) - lead_s(lease.job)
        if since + timedelta(seconds=wait_s) * scale <= at:
            unused.append(_UnusedSession(lease, since))
    return unused


def _warned(unused: list[_UnusedSession]) -> dict[int, datetime]:
    """Return when leases were warned since their last use, by lease."""
    events = LeaseEvent.objects.filter(
        lease__in=[one.lease.pk for one in unused],
        kind=LeaseEvent.Kind.IDLE,
        data__has_key="session",
    )
    since = {one.lease.pk: one.since for one in unused}
    rows = events.order_by("-at").values_list("lease_id", "at")
    return {lease: at for lease, at in rows if at >= since[lease]}


def _warn(pool: Pool, token: int, unused: list[_UnusedSession], at: datetime) -> None:
    fence = lock_fence(pool.pk, token)
    events = EventLog(pool.pk, fence.next_round - 1, wall_now())
    for lease, since in unused:
        data = {"since_us": to_us(since), "gpus": lease.gpus, "session": lease.job.session}
        events.add(
            LeaseEvent.Kind.IDLE, at, data,
            lease=lease.pk, job=lease.job_id, tenant=lease.tenant_id, term=lease.term,
        )  # fmt: skip # rows of what belongs together
    events.write(fence)
    fence.save(update_fields=["next_event"])
    log.info("session.warned", leases=[one.lease.pk for one in unused])
