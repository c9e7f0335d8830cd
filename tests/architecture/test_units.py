"""Test that factors of units are named in `evenshare_core.units`, and nowhere else.

SQL repeats them, because a statement cannot import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import CORE, name_of, python_files, tree

APPS = (f"{CORE}/", "billing/", "scheduling/", "tenants/", "portal/")
UNITS = f"{CORE}/units.py"
MILLION = 10**6
HOUR_US = 3600 * MILLION
# A constant is checked within the smallest of these nodes around it.
STATEMENTS = (ast.stmt, ast.keyword, ast.comprehension, ast.Call, ast.Compare, ast.BinOp)

SOURCES = [
    path
    for path in python_files(*APPS)
    if "/migrations/" not in name_of(path) and name_of(path) != UNITS
]


def factors(path: Path) -> Iterator[str]:
    """Yield the places where a factor of a unit is a number."""
    for node, parent in _with_parents(tree(path)):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            names = " ".join(
                name for part in ast.walk(parent) for name in (_name(part),) if name is not None
            )
            if (type(node.value) is int and node.value in (MILLION, HOUR_US)) or (
                (node.value == MILLION and _has(names, "_us", "_micro"))
                or (node.value == 1000 and _has(names, "_milli", "_us"))
            ):
                yield f"{name_of(path)}:{node.lineno}: {ast.unparse(parent)}"


def _with_parents(root: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield every node with the smallest statement or operation around it."""
    pending = [(root, root)]
    while pending:
        node, around = pending.pop()
        yield node, around
        inner = node if isinstance(node, STATEMENTS) else around
        pending += [(child, inner) for child in ast.iter_child_nodes(node)]


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
        case ast.keyword(arg=name):
            return name
    return None


def _has(names: str, *endings: str) -> bool:
    return any(name.endswith(endings) for name in names.split())


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_unit_factors_are_named(path: Path) -> None:
    assert not list(factors(path))


def test_check_detects_unit_factors() -> None:
    assert any("SECOND_US = 1000000" in one for one in factors(_units()))
    assert sum("1000" in one for one in factors(_units())) >= 5


def _units() -> Path:
    return next(path for path in python_files(UNITS))
