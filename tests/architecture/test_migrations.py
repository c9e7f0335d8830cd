"""A migration that runs code queries the database that it migrates, as the owner of its tables.

The default connection has the application's role, to which row security applies. There such a
migration finds no row or fails, but only in a database with rows. So an empty one does not reveal
it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

MIGRATIONS = sorted(
    path
    for app in ("billing", "scheduling", "tenants")
    for path in (ROOT / app / "migrations").glob("0*.py")
)


def loose_managers(source: str) -> list[int]:
    """Return the lines on which rows are queried on the default connection."""
    nodes = list(ast.walk(ast.parse(source)))
    chosen = {
        id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "using"
    }
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "objects" and id(node) not in chosen
    ]


@pytest.mark.parametrize("path", MIGRATIONS, ids=lambda path: path.name)
def test_migration_queries_as_owner(path: Path) -> None:
    source = path.read_text("utf-8")
    assert loose_managers(source) == []
    assert ".save(" not in source or "using=" in source


def test_check_detects_default_manager() -> None:
    assert loose_managers("Model.objects.filter(a=1)") == [1]
    assert loose_managers("Model.objects.using(owner).filter(a=1)") == []
