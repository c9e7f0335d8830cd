"""Test the process tree of `make run`: an interrupted or failed start leaves no process behind.

test_demo_pool.py tests the faults of a running tree, test_local_executor_tree.py its end.
"""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from portal.embedded import pulse
from portal.embedded.folders import CHECKOUT
from tests.integration.tree import RunningTree, migrated
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually

# `manage.py up` with less patience for one worker.
IMPATIENT = """
import sys
from portal.embedded import pulse, supervisor
pulse.PATIENCE_S["default"] = 10.0
sys.exit(supervisor.main([]))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it reads /proc")


class TestStopping:
    def test_interrupted_start_leaves_no_process(self, tmp_path: Path) -> None:
        tree = RunningTree(migrated(tmp_path / "data"), free_port())
        try:
            eventually(lambda: tree.find("portal.site.prepare") or tree.ended())
            assert tree.interrupt() == 0
            assert tree.processes() == {}
        finally:
            tree.end()


class TestHangingWorker:
    def test_is_restarted_without_restarting_others(self, tmp_path: Path) -> None:
        tree = RunningTree(migrated(tmp_path / "data"), free_port(), ("-c", IMPATIENT))
        try:
            for name in pulse.PATIENCE_S:
                eventually((tree.data / "run" / f"pulse-{name}").exists)
            others = {name: tree.find(name) for name in ("--queues rounds", "celery beat")}
            stopped = tree.kill("--queues default", signal.SIGSTOP)
            eventually(lambda: tree.find("--queues default") not in (0, stopped))
            assert "worker-default restarts: no heartbeat for" in tree.text()
            assert {name: tree.find(name) for name in others} == others
        finally:
            tree.end()


class TestFailingStart:
    def test_reports_taken_port_in_one_line(self, tmp_path: Path) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            assert refusal(tmp_path / "data", PORT=str(port)).startswith(
                f"evenshare: port {port} cannot be used"
            )

    def test_reports_invalid_port(self, tmp_path: Path) -> None:
        assert "PORT must be a number" in refusal(tmp_path / "data", PORT="http")

    @pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("8010", 2)])
    def test_rejects_arguments_and_explains_port_variable(self, argument: str, status: int) -> None:
        done = subprocess.run(
            [sys.executable, "manage.py", "up", argument],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, "PORT=8010" in done.stdout) == (status, True)

    def test_reports_file_in_place_of_data_folder(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("")
        assert "data folder" in refusal(tmp_path / "data")

    def test_reports_broken_cluster(self, tmp_path: Path) -> None:
        (tmp_path / "data/postgres/cluster").mkdir(parents=True)
        assert "is broken" in refusal(tmp_path / "data")

    def test_reports_cluster_of_other_postgresql_version(self, tmp_path: Path) -> None:
        cluster = tmp_path / "data/postgres/cluster"
        (cluster / "global").mkdir(parents=True)
        (cluster / "global/pg_control").touch()
        (cluster / "PG_VERSION").write_text("9\n")
        assert "made by PostgreSQL 9" in refusal(tmp_path / "data")


def refusal(data: Path, **environment: str) -> str:
    """Return the only line that a failing start prints."""
    tree = RunningTree(data, free_port(), **environment)
    try:
        assert tree.process.wait(PATIENCE_S) == 1
        (line,) = tree.text().splitlines()
        return line
    finally:
        tree.end()
