"""Makes messages of events: one SQL statement joins a pool's new events with subscriptions.

It runs after rounds, from a cursor, so that no round waits for it. A crash between an event and
its messages loses none, because the cursor moves in the transaction that writes the messages.
`announce` writes the messages of other changes, in the transaction of the change.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from evenshare_core.domain.reasons import EndReason
from scheduling.models import MessageKind, OutboxCursor, PoolFence, Subscription
from tenants.faults import fault_point
from tenants.scopes import site_scope

BATCH = 5000

# Ends of leases after which the job has ended, was interrupted, or waits for another term. A job
# that only moves continues, and causes no message.
_OVER = (EndReason.FINISHED, EndReason.CANCELLED)
_BROKEN = (EndReason.NODE_LOST, EndReason.DRAINED, EndReason.LOST, EndReason.QUARANTINED)
_EXPIRED = (
    *(EndReason.NOT_RENEWED, EndReason.PRICE_ABOVE_MAX),
    *(EndReason.PRICE_ABOVE_VALUE, EndReason.BUDGET),
)

_EVENT_KIND = f"""
CASE
  WHEN e.kind = 'started' AND l.number = 1 THEN '{MessageKind.JOB_STARTED}'
  WHEN e.kind IN ('promised', 'late_start', 'promise_ended') THEN '{MessageKind.START_PROMISED}'
  WHEN e.kind = 'idle' THEN '{MessageKind.JOB_IDLE}'
  WHEN e.kind = 'stop_asked' AND e.data->>'reason' = '{EndReason.PREEMPTED}'
    THEN '{MessageKind.JOB_PREEMPTED}'
  WHEN e.kind <> 'ended' OR NOT (e.data->>'started')::boolean THEN NULL
  WHEN e.data->>'reason' IN {tuple(map(str, _OVER))} THEN '{MessageKind.JOB_ENDED}'
  WHEN e.data->>'reason' = '{EndReason.IDLE}' THEN '{MessageKind.JOB_IDLE}'
  WHEN e.data->>'reason' = '{EndReason.FAILED}' THEN '{MessageKind.JOB_FAILED}'
  WHEN e.data->>'reason' IN {tuple(map(str, _BROKEN))}
    THEN CASE WHEN j.state = 'failed' AND j.ended_at = e.at THEN '{MessageKind.JOB_FAILED}'
         ELSE '{MessageKind.JOB_PREEMPTED}' END
  WHEN e.data->>'reason' IN {tuple(map(str, _EXPIRED))} THEN '{MessageKind.JOB_NOT_RENEWED}'
END
"""
# The job's facts, which its own tenant may see. Nothing of another tenant or person is copied: of
# a preemption, for example, not the job that benefits.
_JOB_FACTS = """
jsonb_build_object(
  'tenant', t.slug, 'pool', p.name, 'at', e.at,
  'job', jsonb_build_object('id', j.uid, 'name', j.name, 'gpus', j.gpus)
)
"""
_EVENTS = f"""
SELECT e.tenant_id, e.pool_id, j.id AS job_id, j.submitted_by_id, j.tags, e.at, e.posted_at,
  'event:' || e.pool_id || ':' || e.number AS event, {_EVENT_KIND} AS kind,
  {_JOB_FACTS} || jsonb_strip_nulls(jsonb_build_object(
    'event', e.kind, 'reason', e.data->'reason', 'exit_code', e.data->'exit_code',
    'gpu_type', COALESCE(g.name, e.data->>'gpu_type'), 'gpus', COALESCE(l.gpus, j.gpus),
    'due_us', e.data->'due_us', 'since_us', e.data->'since_us',
    'session', CASE WHEN e.kind = 'idle' THEN e.data->>'session' ELSE NULLIF(j.session, '') END
  )) AS data
FROM scheduling_leaseevent e
JOIN scheduling_job j ON j.id = e.job_id AND j.profiling_s = 0
JOIN scheduling_pool p ON p.id = e.pool_id
JOIN tenants_tenant t ON t.id = e.tenant_id
LEFT JOIN scheduling_lease l ON l.id = e.lease_id
LEFT JOIN scheduling_gputype g ON g.id = l.gpu_type_id
WHERE e.pool_id = %(pool)s AND e.number > %(after)s AND e.number <= %(last)s
  AND e.kind IN ('started', 'ended', 'stop_asked', 'promised', 'late_start', 'promise_ended',
    'idle')
"""  # noqa: S608 - only names of codes are inserted
_ANSWERS = f"""
SELECT e.tenant_id, j.pool_id, j.id AS job_id, j.submitted_by_id, j.tags, e.at,
  NULL::timestamptz AS posted_at, 'answer:' || e.job_id || ':' || e.round AS event,
  '{MessageKind.DEADLINE_MOVED}' AS kind,
  {_JOB_FACTS} || jsonb_build_object(
    'state', e.state, 'by_at', e.by_at, 'old_state', o.state, 'old_by_at', o.by_at
  ) AS data
FROM scheduling_job j
JOIN scheduling_jobanswer e ON e.job_id = j.id AND e.round > %(after)s AND e.round <= %(last)s
JOIN scheduling_pool p ON p.id = j.pool_id
JOIN tenants_tenant t ON t.id = e.tenant_id
CROSS JOIN LATERAL (
  SELECT state, by_at FROM scheduling_jobanswer
  WHERE job_id = e.job_id AND round < e.round ORDER BY round DESC LIMIT 1
) o
WHERE j.pool_id = %(pool)s AND j.state IN ('pending', 'running', 'stopping')
  AND j.deadline_at IS NOT NULL
  AND (o.state, o.by_at) IS DISTINCT FROM (e.state, e.by_at)
"""  # noqa: S608 - the same
_CHANGE = """
SELECT %(tenant)s::bigint AS tenant_id, %(pool)s::bigint AS pool_id, NULL::bigint AS job_id,
  NULL::bigint AS submitted_by_id, NULL::text[] AS tags, %(at)s::timestamptz AS at,
  NULL::timestamptz AS posted_at, %(event)s AS event, %(kind)s AS kind, %(data)s::jsonb AS data
"""
# A person who left the tenant or may not sign in is not a receiver. A tag or "own jobs" restricts
# messages of jobs; events of the tenant itself have no job.
_INSERT = """
INSERT INTO scheduling_message
  (subscription_id, tenant_id, job_id, kind, event, data, at, created_at, due_at, state, attempts)
SELECT s.id, x.tenant_id, x.job_id, x.kind, x.event, x.data, x.at, %(now)s,
  COALESCE(s.digest_at, %(now)s), 'due', 0
FROM ({events}) x
JOIN scheduling_subscription s ON s.tenant_id = x.tenant_id AND s.state = 'active'
  AND x.kind = ANY(s.kinds)
  AND (s.pool_id IS NULL OR x.pool_id IS NULL OR s.pool_id = x.pool_id)
  AND (x.job_id IS NULL OR s.tag = '' OR s.tag = ANY(x.tags))
  AND (x.job_id IS NULL OR NOT s.is_own OR s.person_id = x.submitted_by_id)
  AND (x.posted_at IS NULL OR x.posted_at >= s.created_at)
JOIN tenants_membership m ON m.user_id = s.person_id AND m.tenant_id = s.tenant_id
JOIN tenants_user u ON u.id = s.person_id AND u.is_active
ORDER BY x.at, s.id
ON CONFLICT (subscription_id, event) DO NOTHING
"""


def gather_pool(pool_id: int, *, now: datetime, limit: int = BATCH) -> int:
    """Make messages of a pool's next events and answers; return the number of messages.

    Returns 0 if another worker gathers. The number of queries does not grow. `now`: wall time.
    """
    with site_scope():
        OutboxCursor.objects.bulk_create([OutboxCursor(pool_id=pool_id)], ignore_conflicts=True)
        fence = PoolFence.objects.filter(pool_id=pool_id).first()
        cursor = OutboxCursor.objects.select_for_update(skip_locked=True).filter(pk=pool_id).first()
        if fence is None or cursor is None:
            return 0
        last = min(fence.next_event - 1, cursor.event_number + limit)
        round_ = fence.next_round - 1
        if last <= cursor.event_number and round_ <= cursor.answer_round:
            return 0
        made, span = 0, {"pool": pool_id, "now": now}
        active = Subscription.objects.filter(state=Subscription.State.ACTIVE)
        if last > cursor.event_number and active.exists():
            made += _insert(_EVENTS, {**span, "after": cursor.event_number, "last": last})
        if active.filter(kinds__contains=[MessageKind.DEADLINE_MOVED.value]).exists():
            made += _insert(_ANSWERS, {**span, "after": cursor.answer_round, "last": round_})
        cursor.event_number, cursor.answer_round = last, round_
        cursor.save(update_fields=["event_number", "answer_round"])
        fault_point("outbox.before_commit")
    return made


def announce(
    kind: MessageKind,
    *,
    tenant_id: int,
    event: str,
    data: Mapping[str, Any],
    at: datetime,
    now: datetime,
    pool_id: int | None = None,
) -> int:
    """Make messages of a change, in its transaction; return how many, 0 if repeated.

    `event` names the change uniquely; `data` must not name other tenants or their people. `at`:
    pool time, `now`: wall time. A single query.
    """
    return _insert(
        _CHANGE,
        {
            "kind": kind.value,
            "tenant": tenant_id,
            "pool": pool_id,
            "event": event,
            "data": json.dumps(dict(data)),
            "at": at,
            "now": now,
        },
    )


def next_digest(now: datetime, zone: str, hour: int) -> datetime:
    """Return the next time at which it is `hour` o'clock in a time zone, after `now`.

    An hour that is skipped when clocks go forward counts as the hour after it. An unknown time zone
    counts as UTC: a later version of the tables may lack it.
    """
    try:
        place = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        place = ZoneInfo("UTC")
    there = now.astimezone(place)
    due = there.replace(hour=hour, minute=0, second=0, microsecond=0, fold=0)
    if due.astimezone(now.tzinfo) <= now:
        due = (due.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=place)
    return due.astimezone(now.tzinfo)


def roll_digests(now: datetime) -> int:
    """Set the next time of digests whose time has come; return how many."""
    with site_scope():
        due = list(
            Subscription.objects.select_for_update(skip_locked=True, no_key=True)
            .filter(digest_at__lte=now)
            .order_by("id")
        )
        for row in due:
            row.digest_at = next_digest(now, row.zone, row.digest_hour or 0)
        Subscription.objects.bulk_update(due, ["digest_at"])
    return len(due)


def _insert(events: str, parameters: Mapping[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_INSERT.format(events=events), parameters)
        made: int = cursor.rowcount
    return made
