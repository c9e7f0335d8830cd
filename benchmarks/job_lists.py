"""Benchmark of a tenant's list of jobs with a million finished jobs: the list, search, each filter.

Run `python -m benchmarks.job_lists [jobs]`. Of ten jobs, nine are of one tenant. Requests are
in-process over one connection, as the application's role under row security. For each list it
prints the 95th percentile of the time and the CPU time of this process.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.job_history import add_ended_jobs
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
    *(f"sort={sort}" for sort in ("oldest", "gpu_hours", "queue_time", "ended")),
    "sort=gpu_hours&submitter=me&q=bert",
)


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
        add_ended_jobs(superuser, jobs, lab.at)
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
