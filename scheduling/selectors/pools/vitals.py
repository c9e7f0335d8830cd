"""The health of all pools, for probes and metrics. A fixed number of indexed queries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from scheduling.models import Job, Lease, PoolClock
from tenants.sql import fetch_rows

_POOLS = """
SELECT p.id, p.name, p.policy, p.round_s,
       c.anchor_wall, c.anchor_pool, c.scale, c.paused, c.seen_wall, clock_timestamp(),
       f.last_checked_at, f.next_round - 1, f.next_event - 1,
       coalesce(x.count, 0), left(coalesce(x.error, ''), 200),
       i.open, i.refused, i.attempts, i.oldest_at,
       coalesce(octet_length(s.memory), 0), coalesce(octet_length(s.service), 0),
       (SELECT count(*) FROM scheduling_arrival a WHERE a.pool_id = p.id),
       (SELECT count(DISTINCT d->'number') FROM jsonb_array_elements(b.damaged) d),
       coalesce((SELECT d->>'text' FROM jsonb_array_elements(b.damaged) d
                 WHERE d->>'kind' = 'break' LIMIT 1), ''),
       f.next_round - 1 - coalesce(z.number, 0), u.wall_at, coalesce(z.failure, ''),
       coalesce(h.failures, 0), h.open_until IS NOT NULL, left(coalesce(h.error, ''), 200),
       (SELECT count(*) FROM jsonb_object_keys(coalesce(h.missing, '{}'))), h.frozen_since,
       coalesce(z.findings, '[]')::text
FROM scheduling_pool p
JOIN scheduling_poolclock c ON c.pool_id = p.id
JOIN scheduling_poolfence f ON f.pool_id = p.id
LEFT JOIN LATERAL (
    SELECT memory, service FROM scheduling_roundstate
    WHERE pool_id = p.id ORDER BY number DESC, day DESC LIMIT 1
) s ON true
LEFT JOIN scheduling_roundfailure x ON x.pool_id = p.id
LEFT JOIN scheduling_executorhealth h ON h.pool_id = p.id
LEFT JOIN scheduling_roundscrub b ON b.pool_id = p.id
LEFT JOIN scheduling_roundsealing z ON z.pool_id = p.id
LEFT JOIN LATERAL (
    SELECT wall_at FROM scheduling_round
    WHERE pool_id = p.id AND number > coalesce(z.number, 0) ORDER BY number LIMIT 1
) u ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE last_error <> '') AS refused,
           coalesce(sum(attempts), 0) AS attempts, min(at) AS oldest_at
    FROM scheduling_intent WHERE pool_id = p.id AND state = 'open'
) i
ORDER BY p.id
"""

# By GPU type: all GPUs, those that leases hold, and the free ones on nodes that take leases.
_GPUS = """
SELECT n.pool_id, t.name, sum(n.gpus), sum(h.held),
       sum(CASE WHEN n.effective_state = 'up' THEN n.gpus - h.held ELSE 0 END)
FROM scheduling_node n
JOIN scheduling_gputype t ON t.id = n.gpu_type_id
CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM scheduling_leaseslot s WHERE s.node_id = n.id AND s.holding
) h
WHERE n.pool_id IS NOT NULL
GROUP BY n.pool_id, t.name ORDER BY n.pool_id, t.name
"""

_ROUNDS = """
SELECT x.pool_id, coalesce(max(r.number), x.after), count(r.number),
       coalesce(sum((r.summary->>'granted')::bigint), 0),
       coalesce(sum((r.summary->>'renewed')::bigint), 0),
       coalesce(sum((r.summary->>'ended')::bigint), 0),
       coalesce(sum(r.snapshot_us), 0), coalesce(sum(r.decide_us), 0),
       count(*) FILTER (WHERE r.fallback <> ''),
       count(*) FILTER (WHERE jsonb_array_length(r.certificate->'violated') > 0),
       count(*) FILTER (WHERE r.certificate ? 'failure'),
       coalesce(sum((r.summary->'preempted'->>'guarantee')::bigint), 0),
       coalesce(sum((r.summary->'preempted'->>'pays')::bigint), 0),
       coalesce(sum((r.summary->'preempted'->>'defragment')::bigint), 0),
       coalesce(sum((r.summary->'preempted'->>'gang')::bigint), 0),
       coalesce(sum((r.summary->'preempted'->>'promise')::bigint), 0),
       coalesce(sum((r.summary->'promises'->>'made')::bigint), 0),
       coalesce(sum((r.summary->'promises'->>'kept')::bigint), 0),
       coalesce(sum((r.summary->'promises'->>'late')::bigint), 0),
       coalesce(sum((r.summary->'promises'->>'excused')::bigint), 0)
FROM unnest(%s::bigint[], %s::bigint[]) x(pool_id, after)
LEFT JOIN LATERAL (
    SELECT number, summary, snapshot_us, decide_us, fallback, certificate
    FROM scheduling_round
    WHERE pool_id = x.pool_id AND number > x.after ORDER BY number LIMIT %s
) r ON true
GROUP BY x.pool_id, x.after
"""

# For each pool's last round: the promised properties in its certificate, and whether they hold.
_CERTIFIED = """
SELECT p.id, extract(epoch FROM clock_timestamp() - r.wall_at)::float,
       r.certificate ? 'failure', f->>'name', f->>'verdict', coalesce((f->>'count')::int, 0)
FROM scheduling_pool p
CROSS JOIN LATERAL (
    SELECT wall_at, certificate FROM scheduling_round
    WHERE pool_id = p.id ORDER BY number DESC LIMIT 1
) r
LEFT JOIN LATERAL jsonb_array_elements(r.certificate->'findings') f
  ON f->>'verdict' IN ('holds', 'violated')
WHERE r.certificate IS NOT NULL
ORDER BY p.id
"""


@dataclass(frozen=True, slots=True)
class PoolVitals:
    """A pool at one moment of wall time.

    `checked_at`: the last grid instant (pool time) that was processed. `oldest_intent_at`: when the
    oldest open intent was to take effect. `failures`: consecutive failed rounds. `refused`: open
    intents that the executor refused, with `attempts` attempts in total.

    `damaged`: stored rounds that differ from what was written, or do not follow from the previous
    round; `broken` explains one that does not follow. `unsealed` rounds wait to be sealed, the
    first since `unsealed_at` (wall time); `seal_failure`: why sealing fails. `findings`: those of
    sealed rounds, as in `RoundSealing.findings`.

    `executor_failures`: consecutive failed calls, the last with `executor_error`.
    `is_executor_down`: its breaker is open. `missing`: leases that the executor does not list. If
    many vanished, no round ends them since `frozen_since` (wall time); an operator has to accept
    the loss.
    """

    id: int
    name: str
    policy: str
    round_s: int
    clock: PoolClock
    wall: datetime
    checked_at: datetime | None
    rounds: int
    events: int
    failures: int
    failure: str
    open_intents: int
    refused: int
    attempts: int
    oldest_intent_at: datetime | None
    memory_bytes: int
    service_bytes: int
    arrivals: int
    damaged: int
    broken: str
    unsealed: int
    unsealed_at: datetime | None
    seal_failure: str
    executor_failures: int
    is_executor_down: bool
    executor_error: str
    missing: int
    frozen_since: datetime | None
    findings: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of a type: all, held by leases, and free on nodes that are up."""

    pool: int
    gpu_type: str
    gpus: int
    used: int
    idle: int


@dataclass(frozen=True, slots=True)
class RoundsSince:
    """Totals over several rounds of a pool; `number` is the last of these rounds.

    The fields from `guarantee` to `promise` count leases that ended before their expiry, by rule.
    The last four fields count promised starts, as `PromiseCounts` does.
    """

    pool: int
    number: int
    rounds: int
    granted: int
    renewed: int
    ended: int
    snapshot_us: int
    decide_us: int
    fallbacks: int
    violated: int
    uncertified: int
    guarantee: int
    pays: int
    defragment: int
    # Totals from before these rules and counts existed have a 0.
    gang: int = 0
    promise: int = 0
    made: int = 0
    kept: int = 0
    late: int = 0
    excused: int = 0


@dataclass(frozen=True, slots=True)
class CertificateVitals:
    """A pool's last certificate: its age in wall seconds, and the violations of each promise.

    `broken`: by property, the number of rows, leases or picks that violate it, at least 1 if it is
    violated. Only properties that the policy promises are included.
    """

    pool: int
    age_s: float
    failed: bool
    broken: dict[str, int]


def certificate_vitals() -> list[CertificateVitals]:
    """Return the certificates of all pools' last rounds. A single query."""
    rows = fetch_rows(_CERTIFIED)
    vitals: dict[int, CertificateVitals] = {}
    for pool, age_s, failed, name, verdict, count in rows:
        one = vitals.setdefault(pool, CertificateVitals(pool, max(0.0, age_s), failed, {}))
        if name is not None:
            one.broken[name] = max(1, count) if verdict == "violated" else 0
    return list(vitals.values())


def pool_vitals() -> list[PoolVitals]:
    """Return the health of all pools. A single query."""
    rows = fetch_rows(_POOLS)
    return [_vitals(row) for row in rows]


def _vitals(row: tuple[Any, ...]) -> PoolVitals:
    pool_id, name, policy, round_s, *rest = row
    anchor_wall, anchor_pool, scale, paused, seen_wall, *figures = rest
    clock = PoolClock(
        pool_id=pool_id,
        anchor_wall=anchor_wall,
        anchor_pool=anchor_pool,
        scale=scale,
        paused=paused,
        seen_wall=seen_wall,
    )
    figures[-1] = tuple(json.loads(figures[-1]))
    return PoolVitals(pool_id, name, policy, round_s, clock, *figures)


def active_jobs() -> dict[tuple[int, str], int]:
    """Return the number of active jobs, by (pool, state); `set_aside` for those in quarantine."""
    rows = (
        Job.objects.filter(state__in=Job.ACTIVE_STATES)
        .values("pool_id", "state")
        .annotate(all=Count("id"), quarantined=Count("id", filter=~Q(quarantine="")))
        .order_by("pool_id", "state")
    )
    counts: dict[tuple[int, str], int] = {}
    for row in rows:
        counts[row["pool_id"], row["state"]] = row["all"] - row["quarantined"]
        if row["quarantined"]:
            # The old name is kept, because monitors use it as a label of the metric.
            before = counts.get((row["pool_id"], "set_aside"), 0)
            counts[row["pool_id"], "set_aside"] = before + row["quarantined"]
    return counts


def live_leases() -> dict[tuple[int, str], int]:
    """Return the number of live leases, by (pool, state). A single query."""
    rows = Lease.objects.exclude(state=Lease.State.ENDED).values_list("pool_id", "state")
    return {(pool, state): count for pool, state, count in rows.annotate(Count("id")).order_by()}


def gpu_counts() -> list[GpuCount]:
    """Return the GPUs of all pools by type. A single query."""
    return [GpuCount(*row) for row in fetch_rows(_GPUS)]


def rounds_since(after: Mapping[int, int], *, limit: int) -> list[RoundsSince]:
    """Return each pool's totals over the rounds after a given number, at most `limit` per pool."""
    return [
        RoundsSince(*(int(value) for value in row))
        for row in fetch_rows(_ROUNDS, [list(after.keys()), list(after.values()), limit])
    ]
