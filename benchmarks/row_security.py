"""Benchmark of row level security: a tenant's lists with and without it.

Run `python -m benchmarks.row_security`. The database has 20 tenants, and 4,000 jobs that ran for
hours on 800 GPUs, with usage lines and settlements. A tenant's lists are requested by REST and as
pages, alternately with the policies on and off. Requests are in-process over one connection. The
plain method has the policies off.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.temporary_database import temporary_database
from tests import plugin

TENANTS, JOBS, ROUNDS, TURNS, ASKED = 20, 4000, 30, 12, 8
LISTS = {
    "jobs, REST": "/api/v1/jobs?limit=50",
    "usage, REST": "/api/v1/usage?tenant=t00&limit=50",
    "jobs, page": "/t/t00/jobs/",
    "ledger, page": "/t/t00/ledger/",
    "overview, page": "/t/t00/",
}


def main() -> None:
    with temporary_database():
        compare(filled())


def filled() -> Any:
    """Return a stage with a history and analyzed tables."""
    from django.db import connection

    from billing.metering.meter import meter_pool
    from billing.metering.settle import settle_pool
    from tests.factories import cluster
    from tests.functional.api_stage import ROLES, ApiStage

    lab = cluster({f"t{i:02d}": 40 for i in range(TENANTS)}, nodes=100, gpus=8)
    for i in range(JOBS):
        # Every third tenant demands far more than the others, so that the others lend quota.
        tenant = i % 7 if i % 3 else i % TENANTS
        lab.submit(f"t{tenant:02d}", 1 + i % 4, 600 + i * 37 % 7000)
    for _ in range(ROUNDS):
        lab.round(after_s=900)
        meter_pool(lab.pool.pk)
        settle_pool(lab.pool.pk)
    stage = ApiStage(lab)
    stage.person("ada", "t00", ROLES.MANAGER)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_usageline")
        print(f"{TENANTS} tenants, {JOBS:,} jobs, {cursor.fetchone()[0]:,} usage lines")
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        superuser.execute("ANALYZE")
    return stage


def compare(stage: Any) -> None:
    """Request each list alternately with and without policies, and print the medians."""
    from django.test import Client

    clients = {
        "REST": Client(
            headers={"Authorization": f"Bearer {stage.secrets['ada']}", "Host": "localhost"}
        ),
        "page": Client(headers={"Host": "localhost"}),
    }
    clients["page"].force_login(stage.people["ada"])
    print(f"{'milliseconds':<20}{'without':>9}{'with':>9}{'ratio':>8}")
    for name, address in LISTS.items():
        client = clients[name.rpartition(" ")[2]]
        times: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * TURNS):
            is_on = turn % 2 == 1
            _switch(is_on=is_on)
            client.get(address)
            times[is_on] += list(_times(client, address))
        without, with_ = (statistics.median(times[is_on]) for is_on in (False, True))
        print(f"{name:<20}{without:>9.2f}{with_:>9.2f}{with_ / without:>8.3f}")


def _times(client: Any, address: str) -> Iterator[float]:
    for _ in range(ASKED):
        began = time.perf_counter()
        answer = client.get(address)
        yield (time.perf_counter() - began) * 1000
        if answer.status_code != 200:
            raise SystemExit(f"{address}: {answer.status_code}")


def _switch(*, is_on: bool) -> None:
    """Enable or disable the row policies of the tables."""
    verb = "ENABLE" if is_on else "DISABLE"
    with plugin.SERVICES.postgres.connect(plugin.SHARED) as superuser:
        rows = superuser.execute("SELECT polrelid::regclass::text FROM pg_policy").fetchall()
        for (table,) in rows:
            superuser.execute(f"ALTER TABLE {table} {verb} ROW LEVEL SECURITY")


if __name__ == "__main__":
    main()
