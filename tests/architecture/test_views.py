"""Test that pages call selectors: in portal, only modules that maintain the site make queries."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .sources import ROOT, imported_modules, name_of, python_files, tree

# These modules monitor tables, or fill them for the demo.
MAY_ASK = (
    *("portal/demo/", "portal/management/"),
    *("portal/site/checks.py", "portal/site/prepare.py", "portal/site/health.py"),
    "portal/site/metrics.py",
)
QUERIES = {
    *("objects", "select_related", "prefetch_related", "annotate", "aggregate", "values_list"),
    *("exclude", "order_by", "in_bulk", "bulk_create", "get_or_create", "update_or_create"),
}
REGISTER = "register.filter"  # registers a template tag, and is not a query
BUILDERS = ("django.db.models", "django.db.connection")


def pages() -> list[Path]:
    return [path for path in python_files("portal/") if not name_of(path).startswith(MAY_ASK)]


def queries(path: Path) -> list[str]:
    """Return attributes that only querysets and managers have, and imports of query builders."""
    asked = [
        f"line {node.lineno}: .{node.attr}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and (node.attr in QUERIES or (node.attr == "filter" and ast.unparse(node) != REGISTER))
    ]
    return asked + [name for name in imported_modules(path) if name.startswith(BUILDERS)]


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_views_make_no_queries(path: Path) -> None:
    assert queries(path) == []


def test_check_detects_query() -> None:
    assert queries(ROOT / "tenants" / "selectors" / "tenants.py")
