"""Takes leases back outside a decision.

These are leases of cancelled jobs, of profiling runs whose time is over, of jobs in quarantine, and
expired leases of idle GPUs or sessions.
Leases are also ended if they wait for GPUs on which a written-off lease may still run. Like `apply`
and `observe`, it locks the pool's fence first.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import connection

from evenshare_core.domain.reasons import EndReason
from scheduling.engine.bulk import insert_rows, run
from scheduling.engine.clock import wall_now
from scheduling.engine.events import EventLog
from scheduling.engine.fence import lock_fence
from scheduling.engine.turns import release_due
from scheduling.models import Intent, LeaseEvent, PoolFence
from tenants.faults import fault_point
from tenants.scopes import engine_scope

# SQL: the leases of a profiling run have used its time by the given time.
_PROFILED = """
j.profiling_s > 0 AND j.profiling_s <= (
    SELECT extract(epoch FROM sum(coalesce(h.ended_at, %s) - h.started_at))
    FROM scheduling_lease h WHERE h.job_id = j.id AND h.started_at IS NOT NULL)
"""

# SQL: a running lease of the given ones has expired. A profiling run ends by its time.
_EXPIRED = """
j.profiling_s = 0 AND l.state = 'running' AND l.id = ANY(%s) AND l.expires_at <= %s
AND coalesce(l.protected_until, l.expires_at) <= %s
"""

# SQL: a lease waits for a GPU of the given leases, on a node that takes no leases.
_WAITS_ON_CLOSED_NODE = """
l.state = 'waiting' AND EXISTS (
    SELECT FROM scheduling_leaseslot mine
    JOIN scheduling_leaseslot other ON other.node_id = mine.node_id AND other.slot = mine.slot
     AND other.holding AND other.lease_id = ANY(%s)
    JOIN scheduling_node n ON n.id = mine.node_id AND n.effective_state <> 'up'
    WHERE mine.lease_id = l.id)
"""


class _Revoked(NamedTuple):
    """A lease that was taken back.

    `ended_at` is set if the lease held no GPUs yet, so that it ended at once.
    """

    lease: int
    job: int
    tenant: int
    term: int
    state: str
    ended_at: datetime


def revoke_cancelled(pool_id: int, token: int, *, at: datetime) -> int:
    """Ask the executor to stop cancelled jobs, and profiling runs whose time is over.

    Jobs that hold no GPUs end at once. Return the number of jobs. Held jobs whose turn has come are
    released.
    """
    with engine_scope(pool_id):
        fence = lock_fence(pool_id, token)
        revoked = len(_revoke(fence, "j.cancel_asked_at IS NOT NULL", EndReason.CANCELLED, at))
        revoked += len(_revoke(fence, _PROFILED, EndReason.PROFILED, at, [at]))
        ended = _end_idle(pool_id, "cancelled", "j.cancel_asked_at IS NOT NULL", at)
        ended += _end_idle(pool_id, "succeeded", _PROFILED, at, [at])
        # Also if no job has ended: a lost step is made up for in the next round.
        release_due(pool_id, at=at)
        fault_point("cancel.before_commit")
    return revoked + ended


def revoke_idle(pool_id: int, token: int, leases: Sequence[int], *, at: datetime) -> int:
    """End the expired ones of these idle leases; return how many.

    When they have ended, `scheduling.engine.observe` holds their jobs; sessions have ended then. No
    lease ends within its minimum runtime.
    """
    with engine_scope(pool_id):
        fence = lock_fence(pool_id, token)
        return len(_revoke(fence, _EXPIRED, EndReason.IDLE, at, [list(leases), at, at]))


def revoke_quarantined(pool_id: int, token: int, *, at: datetime) -> int:
    """Ask the executor to stop running jobs that were quarantined; return how many."""
    with engine_scope(pool_id):
        fence = lock_fence(pool_id, token)
        revoked = len(_revoke(fence, "j.quarantine <> ''", EndReason.QUARANTINED, at))
        run(
            "UPDATE scheduling_job j SET state = 'pending', version = version + 1"
            " WHERE pool_id = %s AND quarantine <> '' AND state IN ('running', 'stopping')"
            " AND NOT EXISTS (SELECT FROM scheduling_lease l"
            "                 WHERE l.job_id = j.id AND l.state <> 'ended')",
            [pool_id],
        )
    return revoked


def withdraw_waiting(pool_id: int, token: int, leases: Sequence[int], *, at: datetime) -> int:
    """End leases that wait for GPUs of `leases` on nodes that take no leases; return how many.

    Their jobs wait again. No program may start on GPUs of a process that could not be ended.
    """
    with engine_scope(pool_id):
        fence = lock_fence(pool_id, token)
        rows = _revoke(fence, _WAITS_ON_CLOSED_NODE, EndReason.DRAINED, at, [list(leases)])
        run(
            "UPDATE scheduling_job j SET state = 'pending', version = version + 1"
            " WHERE id = ANY(%s) AND state IN ('running', 'stopping')"
            " AND NOT EXISTS (SELECT FROM scheduling_lease l"
            "                 WHERE l.job_id = j.id AND l.state <> 'ended')",
            [[row.job for row in rows]],
        )
    return len(rows)


def _revoke(
    fence: PoolFence,
    condition: str,
    why: EndReason,
    at: datetime,
    parameters: Sequence[datetime | list[int]] = (),
) -> list[_Revoked]:
    """Take leases back. `condition`: SQL on the rows of their jobs (`j`) and leases (`l`)."""
    pool_id, reason = fence.pool_id, why.value
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            UPDATE scheduling_lease l
            SET state = CASE WHEN l.state = 'waiting' THEN 'ended' ELSE 'stopping' END,
                ended_at = CASE WHEN l.state = 'waiting' THEN greatest(%s, l.granted_at) END,
                end_reason = %s
            FROM scheduling_job j
            WHERE l.pool_id = %s AND j.id = l.job_id
              AND l.state IN ('waiting', 'launching', 'running') AND {condition}
            RETURNING l.id, l.job_id, l.tenant_id, l.term, l.state, l.ended_at
            """,  # noqa: S608 - a condition of this module's own
            [at, reason, pool_id, *parameters],
        )
        rows = [_Revoked._make(row) for row in cursor.fetchall()]
    events = EventLog(pool_id, fence.next_round - 1, wall_now())
    for row in sorted(rows, key=lambda row: row.lease):
        who = {"lease": row.lease, "job": row.job, "tenant": row.tenant, "term": row.term}
        if row.state == "ended":
            data = {"reason": reason, "exit_code": None, "started": False}
            events.add(LeaseEvent.Kind.ENDED, row.ended_at, data, **who)
        else:
            events.add(LeaseEvent.Kind.STOP_ASKED, at, {"reason": reason}, **who)
    _free([row.lease for row in rows if row.state == "ended"])
    _stop(pool_id, [row for row in rows if row.state != "ended"], at)
    if events.drafts:
        events.write(fence)
        fence.save(update_fields=["next_event"])
    return rows


def _free(leases: list[int]) -> None:
    if leases:
        run("UPDATE scheduling_leaseslot SET planned = false WHERE lease_id = ANY(%s)", [leases])


def _stop(pool_id: int, leases: list[_Revoked], at: datetime) -> None:
    """Write one STOP intent per lease, and mark the jobs as stopping."""
    if not leases:
        return
    run(
        "UPDATE scheduling_job SET state = 'stopping', version = version + 1"
        " WHERE id = ANY(%s) AND state = 'running'",
        [[row.job for row in leases]],
    )
    insert_rows(
        "scheduling_intent",
        ("pool_id", "lease_id", "kind", "term", "at", "state", "attempts", "last_error"),
        (
            (pool_id, row.lease, Intent.Kind.STOP.value, row.term, at, "open", 0, "")
            for row in leases
        ),
    )


def _end_idle(
    pool_id: int, state: str, of_jobs: str, at: datetime, parameters: Sequence[datetime] = ()
) -> int:
    """End jobs that hold no GPUs (any more). `of_jobs`: an SQL condition on their rows (`j`).

    Cancelled jobs keep their holds, as these show that they were not waiting.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            UPDATE scheduling_job j
            SET state = %s, ended_at = greatest(%s, submitted_at), reason_code = '',
                version = version + 1, holds = CASE WHEN %s THEN holds ELSE '{{}}' END
            WHERE pool_id = %s AND state IN ('pending', 'running', 'stopping')
              AND NOT EXISTS (SELECT FROM scheduling_lease l
                              WHERE l.job_id = j.id AND l.state <> 'ended')
              AND {of_jobs}
            """,  # noqa: S608 - a condition of this module's own
            [state, at, state == "cancelled", pool_id, *parameters],
        )
        return int(cursor.rowcount)
