"""Benchmark of the ten main pages with a million ended jobs, and what rounds and billing left.

Run `python -m benchmarks.main_pages [jobs] [folder]`. The database has a job every 30 s, a round a
minute. Each job has a lease, a term, three events and a usage line. Every third job borrowed. Of
ten jobs, nine are of the viewer's tenant. Others run and wait. With a folder, the database's
files stay there for the next run. Requests are in-process over one connection, as the application's
role under row security.

For each page it prints the median and the 95th percentile of the time, and the CPU time of this
process. Then follow the number of queries and the buffers (8 kB) that they read. With `--explain`
it prints the queries that take the longest. The plain method is the same page with a hundredth of
the jobs, of which the figures come from a run with that number.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.job_history import add_ended_jobs, add_their_history, forget_history
from benchmarks.temporary_database import keep_filled, temporary_database
from tests import plugin

JOBS, TURNS, GOAL_MS = 1_000_000, 20, 300
EVERY = timedelta(seconds=30)
RUNNING, WAITING = 60, 200
# The queries of a page that `--explain` shows, and how much of their text.
SHOWN, LETTERS = 3, 600


def main() -> None:
    """Fill the database, request each page `TURNS` times, and print its figures."""
    given = [text for text in sys.argv[1:] if not text.startswith("--")]
    jobs = int(given[0]) if given else JOBS
    kept = Path(given[1]).resolve() if len(given) > 1 else None
    with temporary_database(kept=kept) as is_filled:
        if not is_filled:
            _fill(jobs)
            keep_filled()
        _measure(explains="--explain" in sys.argv)


def _fill(jobs: int) -> None:
    from billing.metering.meter import meter_pool
    from tenants.models import Quota, User
    from tests.factories import BEGIN, cluster
    from tests.functional.api_stage import ROLES, ApiStage

    begin = BEGIN - jobs * EVERY - timedelta(hours=3)
    lab = cluster({f"t{i:02d}": 48 for i in range(10)}, nodes=64, gpus=8, begin=begin, round_s=60)
    second = cluster({}, nodes=8, gpus=8, begin=begin, round_s=60)
    share = {"tenant": lab.tenants["t00"], "gpu_type": lab.gpu_type, "gpus": 8}
    Quota.objects.create(**share, pool=second.pool, valid_from=begin)
    stage = ApiStage(lab)
    stage.person("ada", "t00", ROLES.MANAGER)
    User.objects.bulk_create(User(username=f"user-{i}") for i in range(19))
    for one in (lab, second):
        one.round()
        meter_pool(one.pool.pk)
        one.seal()
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        add_ended_jobs(superuser, jobs, BEGIN - timedelta(hours=2))
        add_their_history(superuser, begin=begin, at=BEGIN)
    _go_on(lab, second)


def _go_on(lab: Any, second: Any) -> None:
    """Let the pools have running and waiting jobs at the end of their past."""
    from billing.metering.meter import meter_pool
    from scheduling.models import PoolClock
    from scheduling.selectors.rounds.states import read_left_state
    from tests.factories import BEGIN, cluster

    fresh = cluster({}, nodes=1, begin=BEGIN - timedelta(minutes=1), round_s=60).pool.pk
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        forget_history(superuser, fresh, read_left_state(fresh).sha256())
    lab.at = second.at = BEGIN
    for i in range(RUNNING):
        lab.submit(f"t{i % 3:02d}", 1 + i % 8, 40_000, command=["true"])
    for one in (lab, second):
        one.round(after_s=60)
    for i in range(WAITING):
        lab.submit(f"t{i % 3:02d}", 8, 40_000, command=["true"])
    for _ in range(3):
        lab.round(after_s=60)
    lab.seal()
    meter_pool(lab.pool.pk)
    PoolClock.objects.update(anchor_pool=lab.at, paused=True)
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        superuser.execute("VACUUM ANALYZE")


def _pages() -> Iterator[tuple[str, str]]:
    """Return the ten main pages of the tenant with the most jobs."""
    from scheduling.models import Job, Round

    name = Job.objects.latest("pk").pool.name
    job = Job.objects.filter(state="running", tenant__slug="t00").latest("pk")
    round_ = Round.objects.filter(pool__name=name).latest("number")
    yield from (
        ("overview", "/t/t00/"),
        ("jobs", "/t/t00/jobs/"),
        ("a job", f"/jobs/{job.uid}/"),
        ("submit", f"/t/t00/jobs/new/?pool={name}"),
        ("pools", "/pools/"),
        ("a pool", f"/pools/{name}/"),
        ("rounds", f"/pools/{name}/rounds/"),
        ("a round", f"/pools/{name}/rounds/{round_.number}/"),
        ("ledger", f"/t/t00/ledger/?pool={name}"),
        ("prices", f"/pools/{name}/prices/"),
    )


@dataclass
class _Reads:
    """The queries of a request: milliseconds of the database, buffers, text."""

    queries: list[tuple[float, int, str]] = field(default_factory=list)

    @property
    def buffers(self) -> int:
        return sum(buffers for _, buffers, _ in self.queries)


def _measure(*, explains: bool) -> None:
    from django.test import Client

    from tenants.models import User

    client = Client(headers={"Host": "localhost"})
    client.force_login(User.objects.get(username="ada"))
    print(f"{'milliseconds, goal ' + str(GOAL_MS):<24}{'p50':>6}{'p95':>6}{'CPU':>6}", end="")
    print(f"{'queries':>9}{'buffers':>9}{'kB':>6}", flush=True)
    for label, address in _pages():
        size = _get(client, address)
        with _explained() as reads:
            _get(client, address)
        spans = sorted(_times(client, address))
        walls = [wall for wall, _ in spans]
        print(
            f"{label:<24}{statistics.median(walls):>6.0f}{walls[int(TURNS * 0.95) - 1]:>6.0f}"
            f"{statistics.median(cpu for _, cpu in spans):>6.0f}"
            f"{len(reads.queries):>9}{reads.buffers:>9,}{size / 1000:>6.0f}",
            flush=True,
        )
        for ms, buffers, query in sorted(reads.queries, reverse=True)[: SHOWN * explains]:
            read = query[max(0, query.find(" FROM ")) :][:LETTERS]
            print(f"    {ms:>7.1f} ms {buffers:>9,} buffers:{read}")


def _get(client: Any, address: str) -> int:
    answer = client.get(address)
    if answer.status_code != 200:
        raise SystemExit(f"{address}: {answer.status_code}")
    return len(answer.content)


def _times(client: Any, address: str) -> Iterator[tuple[float, float]]:
    for _ in range(TURNS):
        began, used = time.perf_counter(), time.process_time()
        _get(client, address)
        yield (time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000


@contextmanager
def _explained() -> Iterator[_Reads]:
    """Count the queries of the block, and explain each that reads."""
    from django.db import connection

    reads = _Reads()

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        ms, buffers = 0.0, 0
        if sql.lstrip("( \n").upper().startswith(("SELECT", "WITH")) and not many:
            with connection.connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
                (answer,) = cursor.fetchone()
            summary = (json.loads(answer) if isinstance(answer, str) else answer)[0]
            ms, plan = summary["Execution Time"] + summary["Planning Time"], summary["Plan"]
            buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        reads.queries.append((ms, buffers, " ".join(sql.split())))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield reads


if __name__ == "__main__":
    main()
