"""Benchmark of a tenant's list of jobs with a million finished jobs: the list, search, each filter.

Run `python -m benchmarks.job_lists [jobs]`. Of ten jobs, nine are of one tenant. Requests are
in-process over one connection, as the application's role under row security. For each list it
prints the 95th percentile of the time and the CPU time of this process.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.temporary_database import temporary_database
from tests import plugin

JOBS, TURNS = 1_000_000, 20
GOAL_MS = 150
# Rare values are those of old jobs; `q=zzz` matches no job.
LISTS = (
    "",
    *(f"q={text}" for text in ("zzz", "bert-9", "bert-4001", "e")),
    *(f"state={state}" for state in ("failed", "succeeded", "pending", "running")),
    "pool=pool-2",
    "pool=pool-2&state=failed",
    *("submitter=me", "submitter=user-7", "submitter=me&state=failed&q=bert"),
    *("exit_code=137", "tag=rare", "tag=rare&submitter=me"),
    "since=2025-01-01&until=2026-01-01",
    "sort=oldest",
)
FILL = """
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


def filled(jobs: int) -> Any:
    """Return a stage with this number of ended jobs, in two pools and ten tenants."""
    from tenants.models import Quota, User
    from tests.factories import cluster
    from tests.functional.api_stage import ROLES, ApiStage

    lab = cluster({f"t{i:02d}": 1 for i in range(10)}, nodes=2, gpus=8)
    stage = ApiStage(lab)
    stage.person("ada", "t00", ROLES.MANAGER)
    User.objects.bulk_create(User(username=f"user-{i}") for i in range(19))
    second = cluster({}, nodes=1)
    share = {"tenant": lab.tenants["t00"], "gpu_type": lab.gpu_type, "gpus": 1}
    Quota.objects.create(**share, pool=second.pool, valid_from=lab.at)
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        superuser.execute("SET session_replication_role = replica")
        superuser.execute(FILL, {"jobs": jobs, "at": lab.at})
        superuser.execute("VACUUM ANALYZE")
    return stage


def main() -> None:
    """Fill the database, request each list `TURNS` times, and print its times."""
    with temporary_database():
        measure(filled(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS))


def measure(stage: Any) -> None:
    """Print the 95th percentile and the median CPU time of each list, for the page and by REST."""
    from django.test import Client

    page = Client(headers={"Host": "localhost"})
    page.force_login(stage.people["ada"])
    rest = Client(headers={"Authorization": f"Bearer {stage.secrets['ada']}", "Host": "localhost"})
    print(f"{'milliseconds, goal ' + str(GOAL_MS):<52}{'page p95':>9}{'CPU':>6}{'REST p95':>9}")
    for query in LISTS:
        figures = []
        for client, address in ((page, "/t/t00/jobs/?"), (rest, "/api/v1/jobs?limit=50&")):
            spans = sorted(_times(client, address + query))
            figures += [spans[int(TURNS * 0.95) - 1][0] * 1000, spans[TURNS // 2][1] * 1000]
        print(f"{query or 'all jobs':<52}{figures[0]:>9.0f}{figures[1]:>6.0f}{figures[2]:>9.0f}")


def _times(client: Any, address: str) -> Iterator[tuple[float, float]]:
    for turn in range(TURNS + 1):
        began, used = time.perf_counter(), time.process_time()
        answer = client.get(address)
        if answer.status_code != 200:
            raise SystemExit(f"{address}: {answer.status_code}")
        if turn:  # the first one fills caches
            yield time.perf_counter() - began, time.process_time() - used


if __name__ == "__main__":
    main()
