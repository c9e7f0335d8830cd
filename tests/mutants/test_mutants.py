"""Mutants of a copy of the code: the tests that are named for each must fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.mutants.mutants import FOLDER, MUTANTS, Mutant
from tests.plugin import Services
from tests.tools import PATIENCE_S

ROOT = Path(__file__).parents[2]
# What a mutant keeps from happening would be waited for in vain.
MUTANT_PATIENCE_S = 20.0
TREE = ("billing", "core", "portal", "scheduling", "tenants", "templates", "static", "tests")
PYTEST = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
    *("-c", os.devnull, "--rootdir", ".", "--import-mode", "importlib"),
    *("-p", "tests.patience"),
)
PURE = (*PYTEST, "--noconftest")
STORED = (
    *(*PYTEST, "-p", "pytest_django.plugin", "--ds", "portal.site.settings"),
    *("-p", "tests.mutants.borrowed", "-p", "tests.scope"),
)


class Laboratory:
    """A copy of the tree in which one file at a time is changed."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.tried = 0
        for name in TREE:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))

    def run(
        self, tests: Iterable[str], *, servers: Path | None, patience_s: float = PATIENCE_S
    ) -> tuple[int, str]:
        """Run tests on the copy; return pytest's status and the end of what it says."""
        core = str(self.tree / "core" / "src")
        environment = {
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": core,
            "EVENSHARE_TEST_PATIENCE_S": f"{patience_s:g}",
        }
        if servers is not None:
            environment[FOLDER] = str(servers)
        done = subprocess.run(
            [*(PURE if servers is None else STORED), *tests],
            cwd=self.tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr)[-3000:]

    def attack(self, mutant: Mutant, *, servers: Path | None) -> tuple[int, str]:
        """Run the mutant's tests on the changed file, and put the file back."""
        path = self.tree / mutant.file
        known, text = path.stat(), path.read_text()
        self.tried += 1
        path.write_text(text.replace(mutant.old, mutant.new))
        # Bytecode is told apart by size and second: both may be the same by chance.
        os.utime(path, (known.st_atime, known.st_mtime + self.tried))
        try:
            return self.run(mutant.tests, servers=servers, patience_s=MUTANT_PATIENCE_S)
        finally:
            path.write_text(text)
            os.utime(path, (known.st_atime, known.st_mtime))


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("mutants"))


def servers_for(request: pytest.FixtureRequest, *, database: bool) -> Path | None:
    """The folder of the servers, started and migrated, where they are needed."""
    if not database:
        return None
    request.getfixturevalue("template_database")
    services: Services = request.getfixturevalue("services")
    return services.folder


def test_the_table_names_each_mutant_once_and_a_place_that_is_there_once() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)
    found = {m.id: (ROOT / m.file).read_text().count(m.old) for m in MUTANTS if m.old != m.new}
    assert found == {mutant.id: 1 for mutant in MUTANTS}


@pytest.mark.parametrize("database", [False, True], ids=["pure", "stored"])
def test_what_is_named_passes_on_the_code_as_it_is(
    database: bool, laboratory: Laboratory, request: pytest.FixtureRequest
) -> None:
    """Otherwise a mutant's failure would say nothing.

    One test of each file: the others pass in the run that this one is part of.
    """
    files = {t.partition("::")[0]: t for m in MUTANTS if m.database is database for t in m.tests}
    named = sorted(files.values())
    status, said = laboratory.run(named, servers=servers_for(request, database=database))
    assert status == 0, said


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_is_seen(mutant: Mutant, laboratory: Laboratory, request: pytest.FixtureRequest) -> None:
    servers = servers_for(request, database=mutant.database)
    status, said = laboratory.attack(mutant, servers=servers)
    assert status == pytest.ExitCode.TESTS_FAILED, said
