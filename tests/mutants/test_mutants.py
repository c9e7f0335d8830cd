"""Mutants of a copy of the code: the tests that are named for each must fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.mutants.laboratory import MUTANT_PATIENCE_S, PURE, ROOT, STORED, Laboratory
from tests.mutants.mutants import MUTANTS, Mutant
from tests.plugin import Services
from tests.tools import PATIENCE_S


class Trials(Laboratory):
    """Tries each mutant of the table in a process of its own."""

    def run(
        self, tests: Iterable[str], *, servers: Path | None, patience_s: float = PATIENCE_S
    ) -> tuple[int, str]:
        """Run tests on the copy; return pytest's status and the end of what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *(PURE if servers is None else STORED), *tests],
            cwd=self.tree,
            env=self.environment(servers=servers, patience_s=patience_s),
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr)[-3000:]

    def attack(self, mutant: Mutant, *, servers: Path | None) -> tuple[int, str]:
        """Run the mutant's tests on the changed file."""
        text = (self.tree / mutant.file).read_text().replace(mutant.old, mutant.new)
        with self.changed(mutant.file, text):
            return self.run(mutant.tests, servers=servers, patience_s=MUTANT_PATIENCE_S)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("mutants"))


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
    database: bool, laboratory: Trials, request: pytest.FixtureRequest
) -> None:
    """Otherwise a mutant's failure would say nothing.

    One test of each file: the others pass in the run that this one is part of.
    """
    files = {t.partition("::")[0]: t for m in MUTANTS if m.database is database for t in m.tests}
    named = sorted(files.values())
    status, said = laboratory.run(named, servers=servers_for(request, database=database))
    assert status == 0, said


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_is_seen(mutant: Mutant, laboratory: Trials, request: pytest.FixtureRequest) -> None:
    servers = servers_for(request, database=mutant.database)
    status, said = laboratory.attack(mutant, servers=servers)
    assert status == pytest.ExitCode.TESTS_FAILED, said
