"""Mutants of a copy of the code: the tests that are named for each must fail.

To try all mutants takes a tenth of the time of all other tests, and checks the tests, not the
product. So only `make soak` tries them. Every run checks that each mutant still applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.mutants.laboratory import (
    FIRST_ONLY,
    MUTANT_PATIENCE_S,
    ROOT,
    Laboratory,
    Nursery,
)
from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS
from tests.plugin import Services
from tests.tools import PATIENCE_S

LIMIT_S = 5 * PATIENCE_S


class Trials:
    """A copy of the tree, and the processes that run tests on it, with and without a database."""

    def __init__(self, tree: Path, stack: ExitStack) -> None:
        self.laboratory = Laboratory(tree)
        self._stack = stack
        self._nurseries: dict[bool, Nursery] = {}

    def nursery(self, request: pytest.FixtureRequest, *, database: bool) -> Nursery:
        """Return the process, which starts at the first call."""
        if database not in self._nurseries:
            servers = servers_for(request) if database else None
            nursery = Nursery(self.laboratory, servers)
            self._nurseries[database] = self._stack.enter_context(closing(nursery))
        return self._nurseries[database]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    with ExitStack() as stack:
        yield Trials(tmp_path_factory.mktemp("mutants"), stack)


def servers_for(request: pytest.FixtureRequest) -> Path:
    """Return the folder of the running, migrated servers."""
    request.getfixturevalue("template_database")
    services: Services = request.getfixturevalue("services")
    return services.folder


def test_mutant_ids_and_places_are_unique() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)
    found = {m.id: (ROOT / m.file).read_text().count(m.old) for m in MUTANTS if m.old != m.new}
    assert found == {mutant.id: 1 for mutant in MUTANTS}


@pytest.mark.parametrize(
    "database",
    [pytest.param(False, id="pure"), pytest.param(True, id="stored", marks=pytest.mark.soak)],
)
def test_named_tests_pass_on_unchanged_code(
    database: bool, trials: Trials, request: pytest.FixtureRequest
) -> None:
    """All tests must pass on the unchanged code, or the failure of a mutant would mean nothing.

    Only one test of each file runs, because this same run executes the others anyway.
    """
    tests = sorted({t for m in MUTANTS if m.database is database for t in m.tests})
    nursery = trials.nursery(request, database=database)
    status = nursery.run(tests, limit_s=LIMIT_S, options=FIRST_ONLY)
    assert status == pytest.ExitCode.OK, nursery.said()


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_mutant_is_killed(mutant: Mutant, trials: Trials, request: pytest.FixtureRequest) -> None:
    nursery = trials.nursery(request, database=mutant.database)
    text = (trials.laboratory.tree / mutant.file).read_text().replace(mutant.old, mutant.new)
    with trials.laboratory.changed(mutant.file, text):
        status = nursery.run(mutant.tests, limit_s=LIMIT_S, patience_s=MUTANT_PATIENCE_S)
    assert status == pytest.ExitCode.TESTS_FAILED, nursery.said()
