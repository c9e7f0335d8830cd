"""Test the one-line messages about requirements that a machine lacks."""

import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from portal.embedded import folders, postgres, valkey
from portal.embedded.errors import StartError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def installer() -> ModuleType:
    """Import requirements/install.py, which belongs to no package."""
    module = ModuleType("install")
    vars(module).update(runpy.run_path(str(ROOT / "requirements" / "install.py")))
    return module


def refusal(call: Any) -> str:
    with pytest.raises(SystemExit) as stopped:
        call()
    line = str(stopped.value)
    assert "\n" not in line
    return line


def small_disk(_: object) -> SimpleNamespace:
    return SimpleNamespace(free=100 * 2**20)


class TestInstallation:
    def test_names_required_python(
        self, installer: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "version_info", (3, 9, 2))
        monkeypatch.setattr(sys, "argv", ["install.py", "core"])
        assert "Python 3.11 or newer is needed" in refusal(installer.main)

    @pytest.mark.parametrize("missing", ["venv", "ensurepip"])
    def test_names_missing_venv_package(
        self, installer: ModuleType, monkeypatch: pytest.MonkeyPatch, missing: str
    ) -> None:
        monkeypatch.setitem(sys.modules, missing, None)
        assert "apt-get install python3." in refusal(installer.check_machine)

    def test_names_required_disk_space(
        self, installer: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", small_disk)
        assert "100 MB free" in refusal(installer.check_machine)


class TestStart:
    def test_names_required_disk_space(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", small_disk)
        with pytest.raises(StartError, match="100 MB free, 512 MB are needed"):
            folders.prepare(tmp_path / "data")

    def test_explains_missing_postgres_and_valkey(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("EVENSHARE_POSTGRES_BIN", raising=False)
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        monkeypatch.setattr(shutil, "which", lambda _: None)
        with pytest.raises(StartError, match="set DATABASE_URL"):
            postgres.find_programs()
        with pytest.raises(StartError, match="set REDIS_URL"):
            valkey.find_program()

    def test_refuses_runtime_folder_of_other_user(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "theirs").mkdir()
        (tmp_path / "run").symlink_to(tmp_path / "theirs")
        monkeypatch.setattr(folders, "_run_path", lambda _: tmp_path / "run")
        with pytest.raises(StartError, match="belongs to another user"):
            folders.prepare(tmp_path / "data")

    def test_keeps_socket_path_short(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        deep = tmp_path / ("deep" * 25)
        deep.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
        place = folders.prepare(deep / "data")
        assert len(str(place.postgres_socket / ".s.PGSQL.5432")) <= 107
        shutil.rmtree(place.run)
