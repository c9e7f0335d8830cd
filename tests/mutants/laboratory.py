"""Copy the tree, change one file at a time, and run the tests on the copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.tools import PATIENCE_S

ROOT = Path(__file__).parents[2]
# the environment variable with the folder of the servers that the tests of a mutant may use
FOLDER = "EVENSHARE_MUTANTS_FOLDER"
# A mutant may prevent an event for good, so a longer wait would be useless.
MUTANT_PATIENCE_S = 10.0
# Modules that are large and slow to import. Their import reads no settings and starts no thread.
LIBRARIES = (
    *("pytest", "hypothesis", "hypothesis.internal.conjecture.engine", "msgspec", "structlog"),
    *("numpy", "highspy", "psycopg", "psycopg_pool", "redis", "celery", "kombu", "yaml"),
    *("django.db.models", "django.db.backends.postgresql.psycopg_any", "django.test"),
    *("django.contrib.postgres.fields", "django.core.management", "django.forms", "httpx"),
    *("django.template.defaulttags", "rest_framework.exceptions", "drf_spectacular.types"),
)
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
# Run only the first test of each file.
FIRST_ONLY = ("-p", "tests.mutants.first")
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

    def environment(self, servers: Path | None) -> dict[str, str]:
        """Return the environment of a process that runs tests on the copy."""
        environment = {
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # Python would keep stale bytecode if a file changed within the same second and kept its
            # size.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.tree / "core" / "src"),
        }
        if servers is not None:
            environment[FOLDER] = str(servers)
        return environment

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """Replace a file's text in the copy during the block."""
        path = self.tree / file
        known, before = path.stat(), path.read_text()
        self.tried += 1
        path.write_text(text)
        # Python detects stale bytecode by the size and the second of the file, which may both be
        # equal by chance.
        os.utime(path, (known.st_atime, known.st_mtime + self.tried))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, (known.st_atime, known.st_mtime))


class Nursery:
    """Runs tests on the copy by `tests.mutants.nursery`, each time in a new process.

    `servers` is the folder of the database servers, or None for tests without a database.
    """

    def __init__(
        self, laboratory: Laboratory, servers: Path | None, libraries: Sequence[str] = LIBRARIES
    ) -> None:
        self._said = laboratory.tree / ("said_pure.txt" if servers is None else "said_stored.txt")
        self._arguments = PURE if servers is None else STORED
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.nursery", *libraries],
            cwd=laboratory.tree,
            env=laboratory.environment(servers),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        tests: Iterable[str],
        *,
        limit_s: float,
        patience_s: float = PATIENCE_S,
        options: Sequence[str] = (),
    ) -> int | None:
        """Run the tests; return pytest's status, or None if the run took longer than the limit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "arguments": [*self._arguments, *options, *tests],
            "environment": {"EVENSHARE_TEST_PATIENCE_S": f"{patience_s:g}"},
            "said": str(self._said),
            "limit_s": limit_s,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        status: int | None = json.loads(self._process.stdout.readline())["status"]
        return status

    def said(self) -> str:
        """Return the end of pytest's last output."""
        return self._said.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self._process.communicate()
