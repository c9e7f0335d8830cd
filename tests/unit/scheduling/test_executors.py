"""Test which executors are available, depending on what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from scheduling.engine.executors.base import (
    EXECUTORS,
    FAULTS,
    GROUP,
    ExecutorError,
    ExecutorTraits,
    executor_for,
    executor_traits,
    missing_executor,
)
from tests.fake_executor.executor import FakeExecutor
from tests.outside_package import install_executor

FAKE = "tests.fake_executor.executor:FakeExecutor"
BASE = "scheduling.engine.executors.base"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add a folder to the path as if its content were installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


class TestExecutor:
    def test_unknown_name_lists_installed_executors(self) -> None:
        with pytest.raises(
            ExecutorError, match="'ray' is not installed; installed are virtual, local"
        ):
            executor_for("ray")

    def test_local_is_refused_in_production(self, settings: Settings) -> None:
        settings.PRODUCTION = True
        with pytest.raises(ExecutorError, match="not in production"):
            executor_for("local")


class TestBuiltInExecutor:
    @pytest.mark.parametrize("name", ["virtual", "local", "slurm"])
    def test_is_entry_point_that_loads(self, name: str) -> None:
        assert EXECUTORS[name].group == GROUP.name
        assert missing_executor(name) == ""


class TestExternalExecutor:
    def test_is_used_by_its_name(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
    ) -> None:
        settings.FAKE_ENGINE = str(folder)
        install_executor(folder, name="fake", value=FAKE)
        entries, faults = GROUP.read(EXECUTORS)
        assert faults == {}
        monkeypatch.setitem(EXECUTORS, "fake", entries["fake"])
        assert isinstance(executor_for("fake"), FakeExecutor)
        assert executor_traits("fake").silence_s == 600

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ("nowhere_at_all:E", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
            (f"{BASE}:E", f"AttributeError: module '{BASE}' has no attribute 'E'"),
            (f"{BASE}:ExecutorError", f"TypeError: {BASE}:ExecutorError has no ExecutorTraits"),
            (f"{__name__}:Half", f"TypeError: {__name__}:Half has no launch, extend, list, forget"),
        ],
    )
    def test_fault_names_package_and_cause(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, value: str, why: str
    ) -> None:
        install_executor(folder, name="ray", value=value)
        monkeypatch.setitem(EXECUTORS, "ray", GROUP.read(EXECUTORS)[0]["ray"])
        text = f"executor 'ray' of acme-engine 1.2 does not load: {why}"
        assert missing_executor("ray") == text
        with pytest.raises(ExecutorError) as raised:
            executor_for("ray")
        assert str(raised.value) == text
        assert executor_traits("ray") == ExecutorTraits()

    def test_does_not_replace_built_in_executor(self, folder: Path) -> None:
        install_executor(folder, name="local", value=FAKE)
        entries, faults = GROUP.read(EXECUTORS)
        assert entries == {}
        assert faults["local"] == (
            "executor 'local' of acme-engine 1.2 is skipped: the portal has one of this name"
        )

    def test_error_names_packages_that_declare_same_name(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_executor(folder, name="ray", value=FAKE)
        install_executor(folder, name="ray", value=FAKE, package="other-engine")
        entries, faults = GROUP.read(EXECUTORS)
        assert entries == {}
        monkeypatch.setitem(FAULTS, "ray", faults["ray"])
        with pytest.raises(ExecutorError, match=r"other-engine .* is skipped: executor names"):
            executor_for("ray")


class Half:
    """An executor that lacks most calls."""

    traits = ExecutorTraits()

    def stop(self) -> None: ...
