"""Test import rules between packages, and the purity of the core."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .sources import BASELINES, CORE, ROOT, imported_modules, name_of, python_files, tree

# A policy gets its time from the snapshot and its randomness from a seed.
CLOCKS = {
    "time.time",
    "time.monotonic",
    "time.perf_counter",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.date.today",
}
SEEDED = {"random.Random"}
FORBIDDEN_ROOTS = {
    "django",
    "rest_framework",
    "celery",
    "kombu",
    "psycopg",
    "redis",
    "requests",
    "httpx",
    "urllib",
    "http",
    "socket",
    "subprocess",
    "secrets",
    "uuid",
}
FILES = {"glob", "os", "pathlib", "shutil", "sys", "tempfile"}
# The core's command line, and the module that loads a library from a copy of its file.
MAY_OPEN = (f"{CORE}/cli/", f"{CORE}/formulations/native.py")
SOLVERS = {"ortools", "pyomo", "highspy"}
# Code that does not depend on the measured programs computes certificates (0200).
MAY_SOLVE = (
    "core/src/evenshare_core/formulations",
    "research/src/evenshare_research/formulations",
    "core/src/evenshare_core/fairness/pareto.py",
    "core/src/evenshare_core/fairness/solver.py",  # creates the solvers of both, without output
)


def test_import_linter_contracts_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def contract(identifier: str) -> dict[str, list[str]]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return next(found for found in linter["contracts"] if found["id"] == identifier)


@pytest.mark.parametrize("path", python_files(CORE, *BASELINES), ids=name_of)
class TestPureCore:
    def test_imports_no_framework_driver_or_network(self, path: Path) -> None:
        roots = {module.partition(".")[0] for module in imported_modules(path)}
        assert not roots & FORBIDDEN_ROOTS

    def test_uses_no_clock_or_global_randomness(self, path: Path) -> None:
        called = {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}
        chance = {name for name in called if name.startswith("random.")} - SEEDED
        assert not chance
        assert not called & CLOCKS
        from_random = {
            alias.name
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ImportFrom) and node.module in ("random", "time")
            for alias in node.names
        }
        assert from_random <= {"Random"}

    def test_does_file_io_only_in_command_line(self, path: Path) -> None:
        if name_of(path).startswith(MAY_OPEN):
            return
        assert not {module.partition(".")[0] for module in imported_modules(path)} & FILES
        called = {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}
        assert not called & {"open", "gzip.open", "input", "print"}

    def test_imports_solvers_only_in_formulations(self, path: Path) -> None:
        if name_of(path).startswith(MAY_SOLVE):
            return
        roots = {module.partition(".")[0] for module in imported_modules(path)}
        assert not roots & SOLVERS


def test_tools_are_configured_only_in_standard_files() -> None:
    """All settings of tools are in pyproject.toml."""
    assert not [
        name
        for name in ("setup.cfg", "tox.ini", "pytest.ini", "mypy.ini")
        if (ROOT / name).exists()
    ]
