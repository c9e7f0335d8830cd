"""A year of ended jobs for benchmarks, with the rows that rounds and billing leave for them.

The rows are made by the database itself, in bulk. Triggers and foreign keys are off meanwhile, so
seals are empty and nothing may verify these rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg

# Rare values are those of old jobs.
JOBS = """
INSERT INTO scheduling_job (uid, tenant_id, pool_id, name, submitted_by_id, submitted_at,
    created_at, source, command, environment, gpus, cpus, memory_mb, gpu_types, weight,
    estimate_source, state, reason_code, terms, leases_held, first_started_at, ended_at, exit_code,
    quarantine, received_gpu_us, deserved_gpu_us, tags, version)
SELECT gen_random_uuid(), t.ids[CASE WHEN n %% 10 > 0 THEN 1 ELSE 2 + n / 10 %% (c - 1) END],
    p.ids[1 + n / 7 %% 2], (ARRAY['train', 'bert', 'sweep', 'eval-long'])[1 + n %% 4] || '-' || n,
    u.ids[1 + n / 13 %% array_length(u.ids, 1)], at, at, 'api', '["true"]', '{}', 1 + n %% 8, 0, 0,
    '{}', 1, '', s.state, '', 1, 1, at + s.wait, at + s.wait + interval '1 hour', s.exit_code, '',
    n::bigint * 1000003 %% 100000000, 0,
    CASE WHEN n %% 5000 = 1 THEN '{rare,nightly}' WHEN n %% 3 = 0 THEN '{nightly}'
        ELSE '{}' END::varchar[], 1
FROM generate_series(1, %(jobs)s) n,
    LATERAL (SELECT %(at)s::timestamptz - (%(jobs)s - n) * interval '30 s' AS at),
    LATERAL (SELECT n %% 600 * interval '1 s' AS wait, CASE WHEN n < 5000 AND n %% 100 = 1 THEN
        'failed' WHEN n %% 20 = 3 THEN 'cancelled' ELSE 'succeeded' END AS state,
        CASE WHEN n < 5000 AND n %% 100 = 1 THEN 137 WHEN n %% 20 = 3 THEN NULL ELSE 0 END
        AS exit_code) s,
    (SELECT array_agg(id ORDER BY slug) AS ids, count(*)::int AS c FROM tenants_tenant) t,
    (SELECT array_agg(id ORDER BY id) AS ids FROM scheduling_pool) p,
    (SELECT array_agg(id ORDER BY id) AS ids FROM tenants_user) u
"""
# Every third lease borrows its GPUs, at a price of 1.5, from another tenant.
LEASES = """
INSERT INTO scheduling_lease (id, pool_id, tenant_id, job_id, gpu_type_id, number, state, gpus,
    placement, granted_round, granted_at, started_at, expires_at, ended_at, end_reason, term, own,
    borrowed, price)
SELECT j.id, j.pool_id, j.tenant_id, j.id, g.id, 1, 'ended', j.gpus,
    jsonb_build_array(jsonb_build_array(n.id, j.gpus)),
    1 + floor(extract(epoch FROM j.first_started_at - %(begin)s::timestamptz) / 60)::bigint,
    j.first_started_at, j.first_started_at, j.ended_at, j.ended_at, 'finished', 1,
    CASE WHEN j.id %% 3 = 0 THEN 0 ELSE j.gpus END, CASE WHEN j.id %% 3 = 0 THEN j.gpus ELSE 0 END,
    CASE WHEN j.id %% 3 = 0 THEN 1.5 ELSE 0 END
FROM scheduling_job j, (SELECT min(id) AS id FROM scheduling_gputype) g,
    LATERAL (SELECT min(id) AS id FROM scheduling_node WHERE pool_id = j.pool_id) n
WHERE j.ended_at IS NOT NULL;
INSERT INTO scheduling_leaseterm (lease_id, number, round, starts_at, expires_at, own, borrowed,
    price, seal)
SELECT id, 1, granted_round, started_at, expires_at, own, borrowed, price, '' FROM scheduling_lease
WHERE state = 'ended';
INSERT INTO scheduling_leaseevent (pool_id, number, kind, at, posted_at, round, lease_id, job_id,
    tenant_id, term, data, seal)
SELECT l.pool_id, f.next_event + row_number() OVER (PARTITION BY l.pool_id ORDER BY l.id, k) - 1,
    (ARRAY['granted', 'started', 'ended'])[k], CASE k WHEN 3 THEN l.ended_at ELSE l.started_at END,
    l.started_at, l.granted_round, l.id, l.job_id, l.tenant_id, 1,
    CASE k WHEN 3 THEN jsonb_build_object('reason', 'finished', 'exit_code', 0, 'started', true,
        'gpu_type', 'v100')
    ELSE jsonb_build_object('own', l.own, 'borrowed', l.borrowed, 'price', l.price::text,
        'gpu_type', 'v100', 'expires_us', extract(epoch FROM l.expires_at)::bigint * 1000000)
    END, ''
FROM scheduling_lease l JOIN scheduling_poolfence f USING (pool_id), generate_series(1, 3) k
WHERE l.state = 'ended' ORDER BY l.id, k
"""
USAGE = """
INSERT INTO billing_account (book_id, kind, tenant_id, balance, overrun)
SELECT b.id, 'tenant', t.id, 0, 0 FROM tenants_tenant t, (SELECT min(id) AS id FROM billing_book) b
ON CONFLICT DO NOTHING;
INSERT INTO billing_usageline (pool_id, book_id, tenant_id, job_id, lease_id, term, meter,
    gpu_type_id, gpus, price, starts_at, ends_at, amount, event_number, hour, carried, borne, seal)
SELECT l.pool_id, b.id, l.tenant_id, l.job_id, l.id, 1,
    CASE WHEN l.borrowed > 0 THEN 'borrowed' ELSE 'own' END, l.gpu_type_id, l.gpus, l.price,
    l.started_at, l.ended_at, l.borrowed * l.price, 0, date_trunc('hour', l.ended_at),
    CASE WHEN l.borrowed > 0 THEN 0 END, 0, ''
FROM scheduling_lease l, (SELECT min(id) AS id FROM billing_book) b WHERE l.state = 'ended'
ORDER BY l.id;
INSERT INTO billing_usageshare (line_id, account_id, weight, amount, lent_gpu_us, hour, seal)
SELECT u.id, a.ids[1 + u.id %% cardinality(a.ids)], 1, u.amount, u.gpus * 3600000000::bigint,
    u.hour, ''
FROM billing_usageline u,
    (SELECT array_agg(id ORDER BY id) AS ids FROM billing_account WHERE kind = 'tenant') a
WHERE u.meter = 'borrowed';
INSERT INTO billing_transfer (id, book_id, code, pool_id, tenant_id, hour, effective_at, posted_at,
    data, body_sha256, entry_count, seal)
SELECT md5(concat_ws(' ', pool_id, tenant_id, hour))::uuid, book_id, 'usage', pool_id, tenant_id,
    hour, hour + interval '1 hour', hour + interval '1 hour', '{}', '', 2, ''
FROM billing_usageline WHERE meter = 'borrowed' GROUP BY book_id, pool_id, tenant_id, hour
ORDER BY hour;
INSERT INTO billing_entry (transfer_id, account_id, amount, seal)
SELECT md5(concat_ws(' ', pool_id, tenant_id, hour))::uuid, s.account_id, s.amount, '' FROM (
    SELECT u.pool_id, u.tenant_id, u.hour, sum(u.amount) AS amount FROM billing_usageline u
    WHERE meter = 'borrowed' GROUP BY 1, 2, 3) u,
    LATERAL (SELECT a.id AS account_id, -u.amount AS amount FROM billing_account a
        WHERE a.tenant_id = u.tenant_id
        UNION ALL SELECT (SELECT min(id) FROM billing_account WHERE kind = 'tenant'
            AND tenant_id <> u.tenant_id), u.amount) s
ORDER BY u.hour;
UPDATE billing_account a SET balance = (
    SELECT coalesce(sum(amount), 0) FROM billing_entry WHERE account_id = a.id);
INSERT INTO tenants_dailyspend (tenant_id, book, day, amount, unsettled)
SELECT tenant_id, 'main', hour::date, sum(amount), 0 FROM billing_usageline
WHERE meter = 'borrowed' GROUP BY 1, 3
ON CONFLICT DO NOTHING
"""
# A round a minute, each a copy of the first one, without stored bytes.
ROUNDS = """
INSERT INTO scheduling_round (pool_id, number, at, wall_at, token, policy, policy_version, scale,
    snapshot_sha256, decision_sha256, snapshot_us, decide_us, summary, shares, superseded,
    certificate, fallback, state_sha256, state_note, seal)
SELECT pool_id, number + k, at + k * interval '1 min', wall_at + k * interval '1 min', token,
    policy, policy_version, scale, snapshot_sha256, decision_sha256, snapshot_us, decide_us,
    summary, shares, superseded, certificate, fallback, state_sha256, state_note, seal
FROM scheduling_round, generate_series(1, %(rounds)s) k WHERE number = 1;
INSERT INTO billing_postedprice (pool_id, gpu_type_id, valid_from_round, price, used, capacity,
    base, theta, posted_at, event_number, seal)
SELECT r.pool_id, g.id, r.number + 1, round((r.number %% 997 / 500.0)::numeric, 6) + 0.1,
    r.number %% 480, 480, 1, 2, r.at, 0, ''
FROM scheduling_round r, (SELECT min(id) AS id FROM scheduling_gputype) g WHERE r.number > 1;
UPDATE scheduling_roundstate s SET number = s.number + %(rounds)s, at = r.at, day = r.at::date
FROM scheduling_round r WHERE s.number = 1 AND r.pool_id = s.pool_id
    AND r.number = s.number + %(rounds)s;
UPDATE scheduling_poolfence f SET next_round = r.number + 1, last_at = r.at, next_event =
    coalesce((SELECT max(number) FROM scheduling_leaseevent e WHERE e.pool_id = f.pool_id), 0) + 1
FROM scheduling_round r WHERE r.pool_id = f.pool_id AND r.number = %(rounds)s + 1;
UPDATE scheduling_roundsealing SET number = %(rounds)s + 1;
INSERT INTO tenants_logentry (log_id, index, record, leaf_hash, seal)
SELECT log_id, k, record, leaf_hash, '' FROM tenants_logentry, generate_series(1, %(rounds)s) k
WHERE index = 0;
INSERT INTO tenants_lognode (log_id, level, index, hash, seal)
SELECT log_id, level, i, sha256(int8send(i)), ''
FROM tenants_logentry, generate_series(1, 30) level,
    LATERAL generate_series(0, ((%(rounds)s + 1) >> level) - 1) i
WHERE tenants_logentry.index = 0;
UPDATE billing_metercursor m SET settled_until = date_trunc('hour', %(at)s::timestamptz),
    event_number = (SELECT next_event - 1 FROM scheduling_poolfence WHERE pool_id = m.pool_id)
"""
# The last round leaves the initial state of a pool without a past. Otherwise the next round would
# count all ended jobs.
STATES = """
UPDATE scheduling_roundstate s SET policy = t.policy, policy_version = t.policy_version,
    service = t.service, memory = t.memory, prices = t.prices, entitled = t.entitled
FROM scheduling_roundstate t WHERE t.pool_id = %(fresh)s AND t.number = 0 AND s.number > 1;
UPDATE scheduling_round r SET state_sha256 = %(sha256)s FROM scheduling_roundstate s
WHERE s.pool_id = r.pool_id AND s.number = r.number AND s.number > 1
"""

TABLES = (
    "scheduling_lease",
    "scheduling_leaseterm",
    "scheduling_leaseevent",
    "billing_usageline",
    "billing_usageshare",
    "billing_transfer",
    "billing_entry",
    "scheduling_round",
    "billing_postedprice",
)


def add_ended_jobs(superuser: psycopg.Connection[Any], jobs: int, at: datetime) -> None:
    """Add ended jobs, one every 30 s until `at`: nine of ten are of the first tenant."""
    superuser.execute("SET session_replication_role = replica")
    with _indexed_later(superuser, "scheduling_job"):
        superuser.execute(JOBS, {"jobs": jobs, "at": at})


@contextmanager
def _indexed_later(superuser: psycopg.Connection[Any], *tables: str) -> Iterator[None]:
    """Drop the indexes without a constraint, and make them again after the block: it is faster."""
    dropped = superuser.execute(
        """
        SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
        WHERE i.indrelid = ANY(%s::regclass[]) AND NOT i.indisunique
        """,
        [list(tables)],
    ).fetchall()
    for name, _ in dropped:
        superuser.execute(f"DROP INDEX {name}")
    yield
    superuser.execute("SET maintenance_work_mem = '512MB'")
    for _, definition in dropped:
        superuser.execute(definition)


def add_their_history(superuser: psycopg.Connection[Any], *, begin: datetime, at: datetime) -> None:
    """Add what the ended jobs left since `begin`: leases, events, usage, transfers and rounds.

    Each pool has had its first round, at `begin`; its next round continues after `at`.
    """
    rounds = int((at - begin).total_seconds()) // 60 - 1
    values = {"begin": begin, "at": at, "rounds": rounds}
    with psycopg.ClientCursor(superuser) as cursor, _indexed_later(superuser, *TABLES):
        for statements in (LEASES, USAGE, ROUNDS):
            for statement in statements.split(";\n"):
                cursor.execute(statement, values)
    superuser.execute(
        "SELECT setval(pg_get_serial_sequence('scheduling_lease', 'id'), max(id))"
        " FROM scheduling_lease"
    )
    superuser.execute("VACUUM ANALYZE")


def forget_history(superuser: psycopg.Connection[Any], fresh: int, sha256: str) -> None:
    """Make rounds continue from the state of the pool `fresh`, as if no job had ended."""
    superuser.execute("SET session_replication_role = replica")
    with psycopg.ClientCursor(superuser) as cursor:
        for statement in STATES.split(";\n"):
            cursor.execute(statement, {"fresh": fresh, "sha256": sha256})
