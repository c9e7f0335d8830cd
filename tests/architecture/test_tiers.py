"""Test that rows of tests/rest.py name real tests, and `make test` kills nearly all mutants."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from evenshare_core.policies.registry import POLICIES
from tests.architecture.sources import ROOT
from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS
from tests.rest import REST
from tests.tiers import SAMPLED, SITE_POLICIES

# The part of all mutants that a test of `make test` must kill.
LEAST = 0.95
# Follows the name of a class that inherits tests, such as suites of executors.
INHERITED = "::*"


@cache
def names_of(path: str) -> frozenset[str]:
    """Return a file's classes and tests as node ids; empty if there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    return frozenset(_names(ast.parse((ROOT / path).read_text()), path))


def _names(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}::{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _names(node, f"{prefix}::{node.name}")
            if node.bases:
                yield f"{prefix}::{node.name}{INHERITED}"


def is_there(row: str) -> bool:
    """Return whether a folder, file, class or test with this prefix exists, without parameters."""
    path, _, name = row.partition("::")
    if not name:
        return (ROOT / path).exists()
    name = row.partition("[")[0]
    inherited = name.rpartition("::")[0] + INHERITED
    return inherited in names_of(path) or any(one.startswith(name) for one in names_of(path))


def test_each_row_names_existing_test() -> None:
    assert [row for row in (*REST, *SAMPLED) if not is_there(row)] == []


def test_rows_do_not_overlap() -> None:
    assert [
        one for one in REST for other in REST if one is not other and one.startswith(other)
    ] == []


def test_site_policies_are_registered() -> None:
    assert set(POLICIES) >= SITE_POLICIES


def is_in_make_test(test: str) -> bool:
    """Return whether all cases of a named test stay in `make test`."""
    known = test.partition("[")[2].rstrip("]").split("-")
    if set(known) & (set(POLICIES) - SITE_POLICIES):
        return False
    rows = (*REST, *SAMPLED)
    return not any(test.startswith(row) or row.startswith(test) for row in rows)


def test_make_test_covers_nearly_all_mutants() -> None:
    unseen = [mutant.id for mutant in MUTANTS if not any(map(is_in_make_test, mutant.tests))]
    assert len(unseen) <= (1 - LEAST) * len(MUTANTS), unseen


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_mutant_names_existing_tests(mutant: Mutant) -> None:
    assert [test for test in mutant.tests if not is_there(test)] == []
