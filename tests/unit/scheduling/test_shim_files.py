"""Test the small files between executor and shim, and the processes that they name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.clock import pool_time, wall_time
from scheduling.engine.executors.local_spec import job_environment
from scheduling.engine.executors.shim.files import (
    active,
    claim,
    fence,
    lease_folder,
    number,
    read_json,
    read_text,
    remove,
    write_json,
)
from scheduling.engine.executors.shim.processes import descendants, is_alive, start_of_process
from scheduling.models import PoolClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


class TestClaim:
    def test_succeeds_once_among_concurrent_callers(self, tmp_path: Path) -> None:
        given: list[dict[str, Any] | None] = []
        threads = [
            threading.Thread(target=lambda: given.append(claim(tmp_path))) for _ in range(30)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [record for record in given if record is not None]
        assert read_json(tmp_path / "shim.json") == winner
        assert is_alive(winner)
        assert [path.name for path in tmp_path.iterdir()] == ["shim.json"]

    def test_never_marks_lease_without_process(self, tmp_path: Path) -> None:
        record = claim(tmp_path, never=True)
        assert record == {"never": True}
        assert not is_alive(record)
        assert claim(tmp_path) is None


class TestFence:
    def test_only_increases(self, tmp_path: Path) -> None:
        assert [fence(tmp_path, number) for number in (1, 3, 3, 2, 4)] == [
            True,
            True,
            True,
            False,
            True,
        ]
        assert (tmp_path / "lease").read_text() == "4\n"


class TestFile:
    @pytest.mark.parametrize("text", ["", "[]", "{", "1", "\0", "[" * 100_000])
    def test_invalid_json_object_is_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "x").write_text(text)
        assert read_json(tmp_path / "x") is None

    def test_link_or_pipe_is_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "there").write_text("{}")
        (tmp_path / "link").symlink_to(tmp_path / "there")
        os.mkfifo(tmp_path / "pipe")
        assert [read_text(tmp_path / name) for name in ("there", "link", "pipe")] == ["{}", "", ""]

    def test_is_readable_only_by_owner(self, tmp_path: Path) -> None:
        write_json(tmp_path / "x", {"a": 1}, durably=True)
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["x"]

    def test_deeply_nested_folder_is_moved_aside(self, tmp_path: Path) -> None:
        """The folder is so deep that its contents cannot be removed."""
        (tmp_path / "until").mkdir()
        descriptor = os.open(tmp_path / "until", os.O_RDONLY)
        for _ in range(2000):
            os.mkdir("d", dir_fd=descriptor)
            below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        os.close(descriptor)
        remove(tmp_path / "until")
        (aside,) = tmp_path.iterdir()
        assert aside.name.startswith(".until.")
        subprocess.run(["rm", "-rf", aside], check=True)

    def test_number_falls_back_to_default(self) -> None:
        assert number(10**400, 5.0) == 5.0
        assert number("7", 5.0) == 5.0
        assert number(7, 5.0) == 7.0


class TestTokens:
    def test_map_to_folders(self) -> None:
        assert lease_folder(Path("/r"), "es-12-3") == Path("/r/12/leases/3")

    def test_invalid_names_are_ignored_in_active_folder(self, tmp_path: Path) -> None:
        (tmp_path / "active").mkdir()
        for name in ("es-1-1", "es-1", ".es-1-1.99.new", "es-1-1-1", "..", "es-x-1"):
            if name != "..":
                (tmp_path / "active" / name).touch()
        assert [entry.name for entry in active(tmp_path)] == ["es-1-1"]


class TestProcesses:
    def test_descendants_are_found_and_dead_ones_detected(self) -> None:
        child = subprocess.Popen(["/bin/sh", "-c", "sleep 6000 & wait"], start_new_session=True)
        try:
            assert child.pid in descendants(os.getpid())
            assert start_of_process(child.pid) > 0
        finally:
            for pid in [*descendants(child.pid), child.pid]:
                os.kill(pid, 9)
        # A dead process that its parent has not yet waited for does not count as alive.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_of_process(child.pid) == 0
        child.wait()


class TestEnvironment:
    def test_of_job_is_clean_and_reserved_variables_win(self) -> None:
        os.environ["CANARY"] = "canary"
        try:
            made = job_environment(
                {"A": 1, "EVENSHARE_LEASE": "9"},
                {"EVENSHARE_LEASE": "2"},
                home="/h",
                path="/bin",
                gpus=None,
            )
        finally:
            del os.environ["CANARY"]
        assert set(made) == {"PATH", "HOME", "LANG", "PYTHONUNBUFFERED", "A", "EVENSHARE_LEASE"}
        assert (made["A"], made["EVENSHARE_LEASE"]) == ("1", "2")

    def test_lists_assigned_gpus_only(self) -> None:
        wanted = {"CUDA_VISIBLE_DEVICES": "7"}
        made = job_environment(wanted, {}, home="/", path="/bin", gpus=None)
        assert "CUDA_VISIBLE_DEVICES" not in made
        made = job_environment(wanted, {}, home="/", path="/bin", gpus=[0, 3])
        assert made["CUDA_VISIBLE_DEVICES"] == "0,3"
        assert made["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


class TestPoolTime:
    @pytest.mark.parametrize("scale", [1, 60, 3600])
    def test_conversion_to_wall_time_is_reversible(self, scale: int) -> None:
        wall = datetime(2026, 1, 1, tzinfo=UTC)
        clock = PoolClock(
            anchor_wall=wall, anchor_pool=datetime(2030, 5, 5, tzinfo=UTC), scale=scale
        )
        for seconds in (-100, 0, 7):
            at = wall + timedelta(seconds=seconds)
            assert wall_time(clock, pool_time(clock, at)) == at
