"""`make run` shows a live, fair, paid-for cluster: the whole product on real jobs, and its faults.

One real process tree with the demo pool; the tests below follow it in order.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from tests.integration.tree import ROOT, RunningTree
from tests.ports import free_port
from tests.tools import eventually

STORED = (
    "SELECT count(*) FROM scheduling_roundblob b JOIN scheduling_pool p ON p.id = b.pool_id"
    " WHERE p.name = '{}'"
)

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it reads /proc")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTree]:
    tree = RunningTree(tmp_path_factory.mktemp("demo") / "data", free_port())
    tree.wait_until_ready()
    yield tree
    tree.end()


def one(demo: RunningTree, query: str) -> Any:
    """The first value of a query on the demo's database."""
    socket = (demo.data / "run").resolve() / "pg"
    with psycopg.connect(
        host=str(socket), user="evenshare_app", dbname="evenshare", connect_timeout=5
    ) as connection:
        connection.execute("SET evenshare.scope = 'site'")
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def rounds(demo: RunningTree) -> int:
    return int(one(demo, "SELECT count(*) FROM scheduling_round"))


def wait_for_rounds(demo: RunningTree, more: int) -> None:
    """Wait until so many further rounds are committed."""
    wanted = rounds(demo) + more
    eventually(lambda: rounds(demo) >= wanted, every_s=0.5)


def manage(demo: RunningTree, *words: str, **environment: str) -> str:
    """Run a management command on the demo's database, in a process of its own."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("DATABASE_URL", "OWNER_DATABASE_URL", "REDIS_URL")
    }
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, "EVENSHARE_DATA_DIR": str(demo.data), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestTheDemo:
    def test_grants_more_than_100_leases_over_several_rounds(self, demo: RunningTree) -> None:
        granting = "SELECT count(DISTINCT round) FROM scheduling_leaseevent WHERE kind = 'granted'"
        leases = "SELECT count(*) FROM scheduling_lease"
        eventually(lambda: one(demo, leases) > 100 and one(demo, granting) >= 3, every_s=0.5)

    def test_renews_leases_and_charges_for_what_was_borrowed(self, demo: RunningTree) -> None:
        renewed = "SELECT count(*) FROM scheduling_leaseevent WHERE kind = 'renewed'"
        charged = "SELECT count(*) FROM billing_usageline WHERE amount > 0"
        eventually(lambda: one(demo, renewed) > 0 and one(demo, charged) > 0, every_s=0.5)

    def test_prints_a_first_submission_that_works(self, demo: RunningTree, tmp_path: Path) -> None:
        printed = [line.partition(":   ")[2] for line in demo.text().splitlines()]
        commands = [line for line in printed if line.startswith(".venv/bin/evenshare ")]
        assert len(commands) == 2
        for command in commands:
            program = str(Path(sys.executable).with_name("evenshare"))
            done = subprocess.run(
                [program, *command.split()[1:]],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
            )
            assert done.returncode == 0, done.stdout + done.stderr
        running = (
            "SELECT count(*) FROM scheduling_lease l JOIN scheduling_pool p ON p.id = l.pool_id"
            " WHERE p.name = 'local' AND l.started_at IS NOT NULL"
        )
        eventually(lambda: one(demo, running) > 0, every_s=0.5)

    def test_goes_on_after_the_broker_was_emptied(self, demo: RunningTree) -> None:
        Redis(unix_socket_path=str((demo.data / "run").resolve() / "valkey.sock")).flushall()
        wait_for_rounds(demo, 2)

    def test_goes_on_after_beat_was_killed(self, demo: RunningTree) -> None:
        demo.kill("portal.site.celery beat")
        wait_for_rounds(demo, 2)

    def test_goes_on_after_the_worker_of_rounds_was_killed(self, demo: RunningTree) -> None:
        demo.kill("--queues rounds")
        wait_for_rounds(demo, 2)
        held = one(demo, "SELECT count(*) FROM scheduling_leaseslot WHERE holding")
        assert held <= one(demo, "SELECT sum(gpus) FROM scheduling_node")

    def test_settles_each_hour_between_borrowers_and_lenders(self, demo: RunningTree) -> None:
        eventually(
            lambda: one(demo, "SELECT count(*) FROM billing_transfer") > 0,
            every_s=0.5,
        )
        assert one(demo, "SELECT sum(amount) FROM billing_entry") == 0

    def test_keeps_books_that_add_up_while_it_runs(self, demo: RunningTree) -> None:
        manage(demo, "check_ledger")

    @pytest.mark.parametrize(("pool", "least"), [("philly", 12), ("mixed", 8), ("market", 4)])
    def test_replays_every_stored_round_to_the_same_bytes_elsewhere(
        self, demo: RunningTree, pool: str, least: int
    ) -> None:
        eventually(lambda: one(demo, STORED.format(pool)) >= least, every_s=0.5)
        printed = manage(demo, "replay_round", "--all", "--pool", pool, PYTHONHASHSEED="4242")
        last = printed.strip().splitlines()[-1]
        count = int(last.split()[0])
        assert last == f"{count} of {count} rounds gave the same bytes"
        assert count >= least
