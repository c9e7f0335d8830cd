"""Test that solvers print nothing, because a command's output must be valid JSON."""

from __future__ import annotations

import re
from pathlib import Path

import highspy
import pytest

import evenshare_core
from evenshare_core.fairness.solver import SilentHighs

SOURCES = Path(evenshare_core.__file__).parent


def output_flag(highs: highspy.Highs) -> bool:
    _, value = highs.getOptionValue("output_flag")
    return bool(value)


class TestSolver:
    def test_output_is_off_before_callbacks_are_enabled(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """HiGHS 1.16 prints a banner when callbacks are set unless its output is off."""
        seen: list[bool] = []
        whole = highspy.Highs.enableCallbacks

        def enabled(highs: highspy.Highs) -> None:
            seen.append(output_flag(highs))
            whole(highs)  # type: ignore[no-untyped-call]  # untyped in the library

        monkeypatch.setattr(highspy.Highs, "enableCallbacks", enabled)
        assert not output_flag(SilentHighs())
        assert seen == [False]

    def test_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        highs = SilentHighs()
        highs.addVar(0.0, 1.0)
        highs.run()
        assert capfd.readouterr() == ("", "")

    def test_no_module_creates_plain_highs(self) -> None:
        made = [
            path.relative_to(SOURCES).as_posix()
            for path in SOURCES.rglob("*.py")
            if re.search(r"\bhighspy\.Highs\(", path.read_text())
        ]
        assert made == []
