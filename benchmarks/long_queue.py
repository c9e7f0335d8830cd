"""Benchmark of pages with a very long queue: a list of jobs, a waiting job, the queue.

Run `python -m benchmarks.long_queue [jobs]`, by default with 100,000 jobs. The database has one
pool and two tenants; requests are in-process over one connection. The plain method reads and orders
the whole queue for each page, as for short queues. The order stays in memory from the second page
until the next round.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.temporary_database import temporary_database
from tests import plugin

JOBS, TURNS = 100_000, 3


def main() -> None:
    with temporary_database():
        _compare(_filled(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS))


def _filled(jobs: int) -> Any:
    from scheduling.models import Job
    from tests.factories import cluster
    from tests.functional.api_stage import ROLES, ApiStage
    from tests.functional.grown_stage import queue_jobs

    lab = cluster({"aa": 4, "bb": 4}, round_s=10)
    stage = ApiStage(lab)
    stage.person("ada", "aa", ROLES.MANAGER)
    for tenant in ("aa", "bb"):
        lab.submit(tenant, 4, 40_000)
    lab.round()
    for tenant in ("aa", "bb"):
        lab.submit(tenant, 6, 40_000)
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        superuser.execute("SET session_replication_role = replica")
        queue_jobs(superuser, copies=jobs // 2)
        superuser.execute("ANALYZE")
    for label, act in (("a round", lambda: lab.round(after_s=10)), ("its sealing", lab.seal)):
        begin = time.perf_counter()
        act()
        print(f"{label:<28}{time.perf_counter() - begin:8.2f} s", flush=True)
    print(f"{Job.objects.filter(state='pending').count():,} jobs are queued")
    return stage


def _compare(stage: Any) -> None:
    from scheduling.models import Job
    from scheduling.selectors.jobs.queue_order import _order

    job = Job.objects.filter(state="pending", tenant__slug="aa").latest("pk")
    addresses = {
        "jobs list, page": "/t/aa/jobs/",
        "queued jobs, page": "/t/aa/jobs/?state=pending",
        "a waiting job, page": f"/jobs/{job.uid}/",
        "jobs, REST": "/api/v1/jobs?limit=50",
        "queue, REST": f"/api/v1/pools/{stage.pool}/queue?limit=50",
    }
    print(
        f"{'ms, median':<28}{'whole queue':>14}{'after a round':>15}{'first jobs':>12}{'ratio':>8}"
    )
    for label, address in addresses.items():
        with _whole_queues():
            _order.cache_clear()
            (first,) = _times(stage, address, 1)
            whole = statistics.median(_times(stage, address, TURNS))
        now = statistics.median([*_times(stage, address, TURNS + 1)][1:])
        print(
            f"{label:<28}{whole:>14.0f}{first:>15.0f}{now:>12.0f}{whole / now:>7.1f}x", flush=True
        )


@contextmanager
def _whole_queues() -> Iterator[None]:
    """Treat every queue as short."""
    from scheduling.selectors.jobs import queue_order

    kept = queue_order.FIRST_JOBS
    queue_order.FIRST_JOBS = 10**9
    try:
        yield
    finally:
        queue_order.FIRST_JOBS = kept


def _times(stage: Any, address: str, turns: int) -> Iterator[float]:
    from django.test import Client

    token = {"Authorization": f"Bearer {stage.secrets['ada']}"} if address[:5] == "/api/" else {}
    client = Client(headers={"Host": "localhost", **token})
    client.force_login(stage.people["ada"])
    for _ in range(turns):
        begin = time.perf_counter()
        answer = client.get(address)
        yield (time.perf_counter() - begin) * 1000
        if answer.status_code != 200:
            raise SystemExit(f"{address}: {answer.status_code}")


if __name__ == "__main__":
    main()
