"""Test that the number of concurrent rounds follows the machine's cores unless it is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.embedded import round_processes as module
from portal.embedded.errors import StartError
from portal.embedded.round_processes import round_processes


class TestRoundProcesses:
    @pytest.mark.parametrize("given", ["0", "9", "-1", "two", "1.5", "9999999999", "²"])
    def test_invalid_number_stops_start(self, given: str) -> None:
        with pytest.raises(StartError, match="ROUND_PROCESSES must be a number from 1 to 8, not"):
            round_processes({"ROUND_PROCESSES": given})

    def test_follow_setting(self) -> None:
        assert round_processes({"ROUND_PROCESSES": "3"}) == 3

    @pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (5, 2), (64, 4)])
    def test_default_leaves_cores_for_others(
        self, cores: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "cores", lambda _: cores)
        assert round_processes({}, tmp_path) == expected
