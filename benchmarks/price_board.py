"""Benchmark of the price board with a year of rounds: the page, and the query for its charts."""

import re
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from benchmarks.temporary_database import temporary_database
from tests import plugin

TYPES, ROUNDS, TURNS, POINTS = ("k80", "p100", "v100"), 525_600, 9, 150
GOAL_MS = 150

FILL = """
INSERT INTO billing_postedprice
    (pool_id, gpu_type_id, valid_from_round, price, used, capacity, base, theta, posted_at,
     event_number, surcharge, queued, surcharge_step, surcharge_cap, seal)
SELECT %s, %s, 1000 + k, round(((k %% 997) / 500.0)::numeric, 6) + 0.1, k %% 480, 480, 1, 2,
       %s::timestamptz - (%s - k) * interval '1 minute', k, 0.1, k %% 97, 0.050, 3, ''
FROM generate_series(1, %s) k
"""
PLAIN = """
SELECT DISTINCT ON (stretch) price.id
FROM billing_postedprice price
CROSS JOIN LATERAL width_bucket(
    extract(epoch FROM price.posted_at), extract(epoch FROM %s::timestamptz),
    extract(epoch FROM %s::timestamptz), %s
) stretch
WHERE price.pool_id = %s AND price.gpu_type_id = %s
  AND price.posted_at >= %s AND price.posted_at < %s
ORDER BY stretch, price.posted_at DESC
"""


def main() -> None:
    with temporary_database():
        stage = filled()
        pages(stage)
        queries(stage)


def filled() -> Any:
    """Return a stage whose pool has posted prices for a year, with analysed tables."""
    from scheduling.models import GpuType, PoolClock
    from tests.functional.pool_stage import settled_stage

    stage = settled_stage()
    for name in TYPES[:2]:
        stage.lab.add_type(name, nodes=1, gpus=4, quotas={"alpha": 1})
    stage.lab.round(after_s=60)
    PoolClock.objects.filter(pool=stage.lab.pool).update(anchor_pool=stage.lab.at, paused=True)
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        # turns off seals and guards, which are triggers
        superuser.execute("SET session_replication_role = replica")
        for name in TYPES:
            type_id = GpuType.objects.get(name=name).pk
            values = (stage.lab.pool.pk, type_id, stage.lab.at, ROUNDS, ROUNDS)
            superuser.execute(FILL, values)
        superuser.execute("ANALYZE")
        (count,) = superuser.execute("SELECT count(*) FROM billing_postedprice").fetchone() or (0,)
    print(f"{count:,} posted prices, a round a minute for a year; milliseconds, of {TURNS} turns")
    return stage


def median_ms(asked: Callable[[], object]) -> tuple[float, float]:
    """Return medians of wall and CPU time over some turns, after a warm-up."""
    asked()
    walls, cpus = [], []
    for _ in range(TURNS):
        began, began_cpu = time.perf_counter(), time.process_time()
        asked()
        walls.append((time.perf_counter() - began) * 1000)
        cpus.append((time.process_time() - began_cpu) * 1000)
    return statistics.median(walls), statistics.median(cpus)


def pages(stage: Any) -> None:
    from django.test import Client

    from tenants.models import User

    client = Client(headers={"Host": "localhost"})
    client.force_login(User.objects.get(username="owner"))

    def ask(path: str) -> None:
        answer = client.get(path)
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code}")

    print("page             wall       CPU")
    worst = 0.0
    for window in ("day", "week", "month", "year"):
        path = stage.url(f"prices/?window={window}")
        wall, cpu = median_ms(partial(ask, path))
        worst = max(worst, wall)
        print(f"{window:<12}{wall:>9.0f}{cpu:>10.0f}")
    print(f"goal: at most {GOAL_MS} ms; most measured {worst:.0f} ms")


def queries(stage: Any) -> None:
    """Time the query of a year's chart and the plain one, and print the plan."""
    from django.db import connection

    from billing.selectors.prices import price_history
    from tenants.scopes import site_scope

    pool, now = stage.lab.pool.pk, stage.lab.at
    since = now - timedelta(days=365)
    type_id = stage.lab.gpu_type.pk

    def ours() -> object:
        with site_scope():
            return price_history(pool, "v100", since=since, until=now, points=POINTS)

    def plain() -> object:
        with site_scope(), connection.cursor() as cursor:
            cursor.execute(PLAIN, [since, now, POINTS, pool, type_id, since, now])
            return cursor.fetchall()

    ours_ms, plain_ms = median_ms(ours)[0], median_ms(plain)[0]
    print(
        f"a year's chart of {POINTS} prices: {ours_ms:.1f} ms; every price read:"
        f" {plain_ms:.0f} ms; {plain_ms / ours_ms:.0f}x faster"
    )
    for line in plan(ours):
        print(line)


def plan(asked: Callable[[], object]) -> list[str]:
    """Return the lines of EXPLAIN ANALYZE for the first query that name an index or a time."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        asked()
    query = next(row["sql"] for row in captured if "generate_series" in row["sql"])
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS) " + query.replace("%", "%%"))
        lines = [row[0] for row in cursor.fetchall()]
    return [line for line in lines if re.search(r"Index|Execution Time|Nested Loop", line)]


if __name__ == "__main__":
    main()
