"""The process tree of `make run`: starts, stops, survives kills, leaves nothing behind."""

import gzip
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from portal.embedded.folders import CHECKOUT
from tests.integration.tree import RunningTree
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it reads /proc")

QUEUES = ("default", "rounds")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tree") / "data"


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[RunningTree]:
    tree = RunningTree(folder, free_port(), WEB_PROCESSES="2")
    tree.wait_until_ready()
    yield tree
    tree.end()


class TestARunningTree:
    def test_serves_its_front_page(self, running: RunningTree) -> None:
        assert running.front_page() in (200, 302), running.text()

    def test_serves_its_static_files_by_hash_compressed_and_for_ever(
        self, running: RunningTree
    ) -> None:
        page = gzip.decompress(running.fetch("/").read()).decode()
        named = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert len(named) > 4
        for path in named:
            assert re.search(r"\.[0-9a-f]{12}\.", path), path
            answer = running.fetch(path)
            assert "immutable" in answer.headers["Cache-Control"]
            if not path.endswith(".woff2"):
                assert answer.headers["Content-Encoding"] == "gzip", path
        (sheet,) = [path for path in named if path.endswith(".css")]
        css = gzip.decompress(running.fetch(sheet).read()).decode()
        # What the head preloads is what the style sheet asks for.
        fonts = {f"/static/{font}" for font in re.findall(r'url\("?([^")]+\.woff2)', css)}
        assert {path for path in named if path.endswith(".woff2")} <= fonts

    def test_prints_its_address(self, running: RunningTree) -> None:
        assert f"http://127.0.0.1:{running.port}/" in running.text()

    def test_consumes_both_queues(self, running: RunningTree) -> None:
        for queue in QUEUES:
            eventually((running.data / "run" / f"pulse-{queue}").exists)

    def test_keeps_its_folders_private(self, running: RunningTree) -> None:
        for path in (running.data, (running.data / "run").resolve()):
            assert path.stat().st_mode & 0o077 == 0
        assert (running.data / "secret_key").stat().st_mode & 0o077 == 0

    def test_refuses_a_second_run_of_the_same_data_in_one_line(self, running: RunningTree) -> None:
        second = RunningTree(running.data, free_port())
        assert second.process.wait(PATIENCE_S) == 1
        (line,) = second.text().splitlines()
        assert f"running already (process {running.process.pid}" in line

    @pytest.mark.parametrize(
        "words",
        [
            "web-1",
            "web-2",
            "--queues default",
            "--queues rounds",
            "portal.site.celery beat",
        ],
    )
    def test_starts_a_killed_child_again(self, running: RunningTree, words: str) -> None:
        killed = running.kill(words)
        eventually(lambda: running.find(words) not in (0, killed))

    def test_answers_through_a_crash_of_a_web_process(self, running: RunningTree) -> None:
        other = running.find("web-2")
        killed = running.kill("web-1")
        assert running.front_page() in (200, 302)
        eventually(lambda: running.find("web-1") not in (0, killed))
        assert running.find("web-2") == other, "the others go on"

    def test_counts_requests_of_all_web_processes_as_one_through_a_crash(
        self, running: RunningTree
    ) -> None:
        """Whichever answers the scrape: to Prometheus, a sum that falls is a restart."""
        before = 0.0
        for number in range(24):
            if number == 12:
                running.kill("web-1")
            requests, processes = counted(running)
            assert requests > before
            before = requests
        eventually(lambda: counted(running)[1] == 2)
        assert processes >= 1

    def test_answers_through_a_crash_of_all_web_processes(self, running: RunningTree) -> None:
        for name in ("web-1", "web-2"):
            running.kill(name)
        assert running.front_page() in (200, 302)

    def test_heals_after_the_broker_was_killed(self, running: RunningTree) -> None:
        running.kill("valkey-server")
        wait_for_pulses(running)

    def test_heals_after_the_broker_was_emptied(self, running: RunningTree) -> None:
        Redis(unix_socket_path=str((running.data / "run").resolve() / "valkey.sock")).flushall()
        wait_for_pulses(running)

    def test_heals_after_the_database_was_killed(self, running: RunningTree) -> None:
        postmaster = int((running.data / "postgres/cluster/postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        eventually(lambda: query(running, "SELECT 1") == 1)
        eventually(lambda: running.front_page() in (200, 302))


def counted(running: RunningTree) -> tuple[float, int]:
    """Requests that were answered, and how many web processes there are, by one scrape."""
    running.front_page()
    text = gzip.decompress(running.fetch("/metrics").read()).decode()
    rows = re.findall(r"^evenshare_http_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(map(float, rows)), len(
        re.findall("^evenshare_web_resident_bytes", text, re.MULTILINE)
    )


class TestStopping:
    def test_with_ctrl_c_leaves_no_process_and_keeps_the_data(self, tmp_path: Path) -> None:
        first = RunningTree(tmp_path / "data", free_port())
        try:
            first.wait_until_ready()
            query(first, "COMMENT ON DATABASE evenshare IS 'kept'", role="postgres")
            assert first.interrupt() == 0
            assert first.processes() == {}
        finally:
            first.end()
        second = RunningTree(tmp_path / "data", first.port)
        try:
            second.wait_until_ready()
            about = "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
            assert query(second, f"{about} WHERE datname = 'evenshare'") == "kept"
        finally:
            second.end()

    def test_by_kill_9_leaves_no_orphan_and_starts_again(self, tmp_path: Path) -> None:
        first = RunningTree(tmp_path / "data", free_port())
        try:
            first.wait_until_ready()
            first.process.kill()
            first.process.wait(PATIENCE_S)
            # At once, while the watchdog is still at work: the second start waits for it.
            second = RunningTree(tmp_path / "data", first.port)
            try:
                second.wait_until_ready()
            finally:
                second.end()
        finally:
            first.end()
        assert first.processes() == {}

    def test_during_the_start_leaves_no_process(self, tmp_path: Path) -> None:
        tree = RunningTree(tmp_path / "data", free_port())
        try:
            eventually(lambda: tree.find("portal.site.prepare") or tree.ended())
            assert tree.interrupt() == 0
            assert tree.processes() == {}
        finally:
            tree.end()


class TestAStartThatCannotWork:
    def test_for_a_taken_port_says_so_in_one_line(self, tmp_path: Path) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            assert refusal(tmp_path / "data", PORT=str(port)).startswith(
                f"evenshare: port {port} cannot be used"
            )

    def test_for_a_port_that_is_none(self, tmp_path: Path) -> None:
        assert "PORT must be a number" in refusal(tmp_path / "data", PORT="http")

    @pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("8010", 2)])
    def test_with_arguments_says_that_it_takes_none(self, argument: str, status: int) -> None:
        done = subprocess.run(
            [sys.executable, "manage.py", "up", argument],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, "PORT=8010" in done.stdout) == (status, True)

    def test_for_a_file_in_place_of_the_data_folder(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("")
        assert "data folder" in refusal(tmp_path / "data")

    def test_for_a_broken_cluster(self, tmp_path: Path) -> None:
        (tmp_path / "data/postgres/cluster").mkdir(parents=True)
        assert "is broken" in refusal(tmp_path / "data")

    def test_for_a_cluster_of_another_version(self, tmp_path: Path) -> None:
        cluster = tmp_path / "data/postgres/cluster"
        (cluster / "global").mkdir(parents=True)
        (cluster / "global/pg_control").touch()
        (cluster / "PG_VERSION").write_text("9\n")
        assert "made by PostgreSQL 9" in refusal(tmp_path / "data")


def wait_for_pulses(tree: RunningTree) -> None:
    """Each queue has to be consumed twice from now: a message may be under way already."""
    for queue in QUEUES:
        stamp = tree.data / "run" / f"pulse-{queue}"
        for _ in range(2):
            before = stamp.stat().st_mtime_ns
            eventually(partial(newer, stamp, before))


def newer(path: Path, stamp_ns: int) -> bool:
    return path.stat().st_mtime_ns > stamp_ns


def refusal(data: Path, **environment: str) -> str:
    """The one line of a start that must fail."""
    tree = RunningTree(data, free_port(), **environment)
    try:
        assert tree.process.wait(PATIENCE_S) == 1
        (line,) = tree.text().splitlines()
        return line
    finally:
        tree.end()


def query(tree: RunningTree, statement: str, *, role: str = "evenshare_app") -> object:
    """The first value, or None while the database is away."""
    host = str((tree.data / "run").resolve() / "pg")
    try:
        with psycopg.connect(host=host, user=role, dbname="evenshare") as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
    except psycopg.OperationalError:
        return None
    return row[0] if row else None
