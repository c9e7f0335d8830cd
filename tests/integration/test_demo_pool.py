"""Test `make run` from an empty folder: a live, fair, billed cluster whose processes are killed.

The tests run one after another on a real process tree, and the last one ends it. More about its
start and end is in test_supervisor.py and test_local_executor_tree.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from portal.embedded.restarts import read_restarts
from tests.integration.local_world import processes_below
from tests.integration.test_local_executor_tree import submit
from tests.integration.tree import ROOT, RunningTree
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually

QUEUES = ("default", "rounds")
# The number of newest rounds that are replayed in each pool.
REPLAYED = {"philly": 4, "mixed": 2, "market": 2}
STORED = (
    "SELECT array_agg(number ORDER BY number) FROM (SELECT b.number FROM scheduling_roundblob b"
    " JOIN scheduling_pool p ON p.id = b.pool_id WHERE p.name = '{}'"
    " ORDER BY b.number DESC LIMIT {}) AS newest"
)
CHECK = """
from django.core.management import call_command
call_command("check_ledger")
for pool, numbers in {rounds!r}.items():
    call_command("replay_round", *map(str, numbers), pool=pool)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it reads /proc")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTree]:
    tree = RunningTree(tmp_path_factory.mktemp("demo") / "data", free_port(), WEB_PROCESSES="2")
    try:
        tree.wait_until_ready()
        yield tree
    finally:
        tree.end()


def one(demo: RunningTree, query: str) -> Any:
    """Return the first value of a query on the demo's database."""
    answer = demo.query(query)
    assert answer is not None
    return answer


def wait_for_rounds(demo: RunningTree, more: int) -> None:
    """Wait until `more` rounds are committed."""
    rounds = "SELECT count(*) FROM scheduling_round"
    wanted = one(demo, rounds) + more
    eventually(lambda: one(demo, rounds) >= wanted, every_s=0.5)


def wait_for_pulses(demo: RunningTree) -> None:
    """Wait until each queue was consumed twice: the first message may have been sent earlier."""
    for queue in QUEUES:
        stamp = demo.data / "run" / f"pulse-{queue}"
        for _ in range(2):
            before = stamp.stat().st_mtime_ns
            eventually(partial(newer, stamp, before))


def newer(path: Path, stamp_ns: int) -> bool:
    return path.stat().st_mtime_ns > stamp_ns


def whys(demo: RunningTree) -> str:
    """Return why processes were restarted, as the operator's page shows it."""
    return " ".join(row.why for row in read_restarts(demo.data / "run"))


def counted(demo: RunningTree) -> tuple[float, int]:
    """Return the number of answered requests and of web processes, from one scrape."""
    demo.front_page()
    text = demo.page("/metrics")
    rows = re.findall(r"^evenshare_http_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(map(float, rows)), len(
        re.findall("^evenshare_web_resident_bytes", text, re.MULTILINE)
    )


class TestFreshTree:
    """Tests during the first rounds of the pools."""

    def test_serves_front_page(self, demo: RunningTree) -> None:
        assert demo.front_page() in (200, 302), demo.text()

    def test_serves_static_files_hashed_compressed_and_immutable(self, demo: RunningTree) -> None:
        page = demo.page("/")
        named = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert len(named) > 4
        for path in named:
            assert re.search(r"\.[0-9a-f]{12}\.", path), path
            answer = demo.fetch(path)
            assert "immutable" in answer.headers["Cache-Control"]
            if not path.endswith(".woff2"):
                assert answer.headers["Content-Encoding"] == "gzip", path
        (sheet,) = [path for path in named if path.endswith(".css")]
        css = demo.page(sheet)
        # Fonts are preloaded only if the style sheet uses them.
        fonts = {f"/static/{font}" for font in re.findall(r'url\("?([^")]+\.woff2)', css)}
        assert {path for path in named if path.endswith(".woff2")} <= fonts

    def test_prints_its_address(self, demo: RunningTree) -> None:
        assert f"http://127.0.0.1:{demo.port}/" in demo.text()

    def test_keeps_folders_private(self, demo: RunningTree) -> None:
        for path in (demo.data, (demo.data / "run").resolve()):
            assert path.stat().st_mode & 0o077 == 0
        assert (demo.data / "secret_key").stat().st_mode & 0o077 == 0

    def test_refuses_second_run_of_same_data_in_one_line(self, demo: RunningTree) -> None:
        second = RunningTree(demo.data, free_port())
        assert second.process.wait(PATIENCE_S) == 1
        (line,) = second.text().splitlines()
        assert f"already running (process {demo.process.pid}" in line

    def test_answers_through_crash_of_one_web_process(self, demo: RunningTree) -> None:
        other = demo.find("web-2")
        killed = demo.kill("web-1")
        assert demo.front_page() in (200, 302)
        eventually(lambda: demo.find("web-1") not in (0, killed))
        assert demo.find("web-2") == other, "the others go on"

    def test_request_total_survives_crash_of_web_process(self, demo: RunningTree) -> None:
        """Any process may answer the scrape. Prometheus takes a lower sum for a restart."""
        before = 0.0
        for number in range(24):
            if number == 12:
                demo.kill("web-1")
            requests, processes = counted(demo)
            assert requests > before
            before = requests
        eventually(lambda: counted(demo)[1] == 2)
        assert processes >= 1

    def test_answers_again_after_crash_of_all_web_processes(self, demo: RunningTree) -> None:
        killed = {name: demo.kill(name) for name in ("web-1", "web-2")}
        assert demo.front_page() in (200, 302)
        for name, pid in killed.items():
            eventually(lambda name=name, pid=pid: demo.find(name) not in (0, pid))  # type: ignore[misc]  # bound now


class TestDemo:
    def test_grants_over_100_leases_in_several_rounds(self, demo: RunningTree) -> None:
        granting = "SELECT count(DISTINCT round) FROM scheduling_leaseevent WHERE kind = 'granted'"
        leases = "SELECT count(*) FROM scheduling_lease"
        eventually(lambda: one(demo, leases) > 100 and one(demo, granting) >= 3, every_s=0.5)

    def test_prints_first_submission_that_works(self, demo: RunningTree, tmp_path: Path) -> None:
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


class TestRunningTree:
    def test_consumes_both_queues(self, demo: RunningTree) -> None:
        for queue in QUEUES:
            eventually((demo.data / "run" / f"pulse-{queue}").exists)

    def test_restarts_killed_children_and_continues_rounds(self, demo: RunningTree) -> None:
        names = ("--queues default", "--queues rounds", "portal.site.celery beat")
        killed = {name: demo.kill(name) for name in names}
        for name, pid in killed.items():
            eventually(lambda name=name, pid=pid: demo.find(name) not in (0, pid))  # type: ignore[misc]  # bound now
        wait_for_rounds(demo, 2)
        held = one(demo, "SELECT count(*) FROM scheduling_leaseslot WHERE holding")
        assert held <= one(demo, "SELECT sum(gpus) FROM scheduling_node")

    def test_stopped_beat_turns_readiness_and_pages_red(self, demo: RunningTree) -> None:
        """The supervisor restarts beat after a minute; rounds are late long before."""
        eventually(lambda: demo.fetch("/readyz").status == 200, every_s=0.5)
        beat = demo.kill("portal.site.celery beat", signal.SIGSTOP)
        try:
            eventually(lambda: demo.fetch("/readyz").status == 503, every_s=0.5)
            eventually(lambda: 'data-state="late"' in demo.page("/pools/philly/line/"))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(beat, signal.SIGCONT)
        eventually(lambda: demo.fetch("/readyz").status == 200, every_s=0.5)
        eventually(lambda: 'data-state="live"' in demo.page("/pools/philly/line/"))

    def test_recovers_from_kill_of_broker(self, demo: RunningTree) -> None:
        demo.kill("valkey-server")
        wait_for_pulses(demo)

    def test_recovers_from_emptied_broker(self, demo: RunningTree) -> None:
        Redis(unix_socket_path=str((demo.data / "run").resolve() / "valkey.sock")).flushall()
        wait_for_pulses(demo)
        wait_for_rounds(demo, 2)

    def test_recovers_from_kill_of_database(self, demo: RunningTree) -> None:
        postmaster = int((demo.data / "postgres/cluster/postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        eventually(lambda: demo.query("SELECT 1") == 1)
        eventually(lambda: demo.front_page() in (200, 302))
        wait_for_rounds(demo, 2)
        eventually(lambda: "it ended (SIGKILL)" in whys(demo))

    def test_recovers_from_kill_of_database_session(self, demo: RunningTree) -> None:
        """PostgreSQL also ends all other sessions, with the rounds and writes that run in them."""
        sessions = (
            "SELECT pid FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1"
        )
        os.kill(one(demo, sessions), signal.SIGKILL)
        eventually(lambda: "was terminated by signal 9" in whys(demo))
        eventually(lambda: demo.query("SELECT 1") == 1)
        wait_for_rounds(demo, 2)
        held = one(demo, "SELECT count(*) FROM scheduling_leaseslot WHERE holding")
        assert held <= one(demo, "SELECT sum(gpus) FROM scheduling_node")


class TestBooks:
    """These tests are late, because the demo needs a minute until it charges."""

    def test_have_renewed_leases_and_charges(self, demo: RunningTree) -> None:
        renewed = "SELECT count(*) FROM scheduling_leaseevent WHERE kind = 'renewed'"
        charged = "SELECT count(*) FROM billing_usageline WHERE amount > 0"
        eventually(lambda: one(demo, renewed) > 0 and one(demo, charged) > 0, every_s=0.5)

    def test_settle_each_hour_between_borrowers_and_lenders(self, demo: RunningTree) -> None:
        eventually(
            lambda: one(demo, "SELECT count(*) FROM billing_transfer") > 0,
            every_s=0.5,
        )
        assert one(demo, "SELECT sum(amount) FROM billing_entry") == 0

    def test_rounds_replay_to_same_bytes_with_other_hash_seed(self, demo: RunningTree) -> None:
        """The replay runs in a process with another hash seed, while the demo continues."""
        rounds = {pool: stored(demo, pool) for pool in REPLAYED}
        said = demo.manage(
            "shell", "-v", "0", "-c", CHECK.format(rounds=rounds), PYTHONHASHSEED="4242"
        )
        same = "rounds gave the same bytes"
        assert [line for line in said.splitlines() if line.endswith(same)] == [
            f"{count} of {count} {same}" for count in REPLAYED.values()
        ]


def stored(demo: RunningTree, pool: str) -> list[int]:
    """Return the numbers of the newest rounds of a pool, once enough are stored."""
    count = REPLAYED[pool]
    query = STORED.format(pool, count)
    eventually(lambda: len(demo.query(query) or []) == count, every_s=0.5)  # type: ignore[arg-type]  # an array
    numbers: list[int] = one(demo, query)
    return numbers


class TestKilledPortal:
    """This test is last, because it ends the tree."""

    def test_lets_jobs_checkpoint_and_restarts_at_once(self, demo: RunningTree) -> None:
        demo.pause_all_pools_but("local")
        before = set(demo.processes())
        folder = submit(demo)
        jobs = set(processes_below(demo.data / "jobs"))
        demo.process.kill()
        demo.process.wait(PATIENCE_S)
        # The watchdog is still ending processes, and the start waits for it.
        again = RunningTree(demo.data, free_port())
        try:
            again.wait_until_ready()
            eventually(lambda: not jobs & set(processes_below(demo.data / "jobs")))
            assert (folder / "saved").exists()
            assert not before & set(again.processes())
        finally:
            again.end()
