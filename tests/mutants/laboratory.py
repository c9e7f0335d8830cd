"""A copy of the tree in which one file at a time is changed, and how tests are run on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import PATIENCE_S

ROOT = Path(__file__).parents[2]
# Names the folder of the servers that tests of a mutant may use.
FOLDER = "EVENSHARE_MUTANTS_FOLDER"
# What a mutant keeps from happening would be waited for in vain.
MUTANT_PATIENCE_S = 20.0
TREE = (
    "benchmarks",
    "billing",
    "core",
    "portal",
    "scheduling",
    "tenants",
    "templates",
    "static",
    "tests",
)
PYTEST = (
    *("-x", "-q", "-p", "no:cacheprovider"),
    *("-c", os.devnull, "--rootdir", ".", "--import-mode", "importlib"),
    *("-p", "tests.patience"),
)
PURE = (*PYTEST, "--noconftest")
STORED = (
    *(*PYTEST, "-p", "pytest_django.plugin", "--ds", "portal.site.settings"),
    *("-p", "tests.mutants.borrowed", "-p", "tests.scope"),
)


class Laboratory:
    """Copies the code and its tests into `tree`."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.tried = 0
        for name in TREE:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))

    def environment(
        self, *, servers: Path | None, patience_s: float = PATIENCE_S
    ) -> dict[str, str]:
        """Return the environment of a process that runs tests on the copy."""
        environment = {
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(self.tree / "core" / "src"),
            "EVENSHARE_TEST_PATIENCE_S": f"{patience_s:g}",
        }
        if servers is not None:
            environment[FOLDER] = str(servers)
        return environment

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """Have another text in a file of the copy, and put the file back."""
        path = self.tree / file
        known, before = path.stat(), path.read_text()
        self.tried += 1
        path.write_text(text)
        # Bytecode is told apart by size and second: both may be the same by chance.
        os.utime(path, (known.st_atime, known.st_mtime + self.tried))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, (known.st_atime, known.st_mtime))
