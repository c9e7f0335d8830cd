"""Test the number of web processes for a machine, within PostgreSQL's connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.embedded import web_size as module
from portal.embedded.errors import StartError
from portal.embedded.postgres import SETTINGS
from portal.embedded.web_size import CONNECTIONS, MOST, MOST_BY_ITSELF, cores, memory, web_size

# Connections of other processes: two workers, a tick, migrations, a console.
OTHERS = 20


def container(folder: Path, *, cpu: str, memory_bytes: str) -> Path:
    (folder / "cpu.max").write_text(cpu + "\n")
    (folder / "memory.max").write_text(memory_bytes + "\n")
    return folder


class TestWebProcesses:
    @pytest.mark.parametrize("given", ["0", "13", "-1", "two", "1.5", "1e1", "9999999999", "²"])
    def test_invalid_number_stops_start(self, given: str) -> None:
        with pytest.raises(StartError, match="WEB_PROCESSES must be a number from 1 to 12, not"):
            web_size({"WEB_PROCESSES": given})

    @pytest.mark.parametrize("count", range(1, MOST + 1))
    def test_follow_setting_and_leave_connections_for_others(self, count: int) -> None:
        size = web_size({"WEB_PROCESSES": str(count)})
        assert size.processes == count
        assert size.connections >= 6, "log-ins, probes, the board and one page"
        assert size.processes * size.connections + OTHERS <= int(SETTINGS["max_connections"])

    def test_default_is_limited_by_cores_and_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "cores", lambda _: 64)
        monkeypatch.setattr(module, "memory", lambda _: 2**40)
        assert web_size({}, tmp_path) == (MOST_BY_ITSELF, CONNECTIONS)
        monkeypatch.setattr(module, "memory", lambda _: 1200 * 2**20)
        assert web_size({}, tmp_path) == (2, CONNECTIONS)
        monkeypatch.setattr(module, "cores", lambda _: 1)
        assert web_size({}, tmp_path) == (1, CONNECTIONS)

    def test_default_respects_container_limits(self, tmp_path: Path) -> None:
        limited = container(tmp_path, cpu="100000 100000", memory_bytes=str(300 * 2**20))
        assert cores(limited) == 1
        assert memory(limited) == 300 * 2**20
        assert web_size({}, limited).processes == 1

    def test_container_without_limits_uses_machine(self, tmp_path: Path) -> None:
        free = container(tmp_path, cpu="max 100000", memory_bytes="max")
        nowhere = tmp_path / "none"
        assert cores(free) == cores(nowhere) >= 1
        assert memory(free) == memory(nowhere) > 2**20
