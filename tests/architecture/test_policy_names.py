"""Test that a policy's name occurs only in its package and the registry; other code looks it up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenshare_core.policies.registry import POLICIES

from .sources import CORE, files, name_of, python_files, tree

PREFIXES = ("portal/", "scheduling/", "billing/", "tenants/", "core/src/", "client/src/")
EXCEPT = {
    f"{CORE}/policies/": "the policies themselves, and their registry",
    f"{CORE}/formulations/": "rules of papers as programs; policies of sharing choose one",
    f"{CORE}/simulation/trace_formats.py": "traces have the names of papers",
    "scheduling/management/commands/import_trace.py": "the same",
    "portal/demo/": "the demo's pools",
}
# The product's own policy has the product's name, which may occur anywhere.
PRODUCT = "evenshare"
# The API's framework uses the abbreviation of dominant resource fairness in names of its modules.
FRAMEWORK = "drf"
NAMES = "|".join(sorted(POLICIES.keys() - {PRODUCT, FRAMEWORK}))
IN_TEXT = re.compile(rf"\b(?:{NAMES})\b", re.IGNORECASE)
IN_IDENTIFIER = re.compile(rf"(?:^|_)(?:{NAMES})(?:_|$)")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_held(path: Path) -> bool:
    name = name_of(path)
    return name.startswith(PREFIXES) and not name.startswith(tuple(EXCEPT))


def docstrings(module: ast.Module) -> set[int]:
    """Return the nodes that are docstrings: they may name a paper."""
    return {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


def named(path: Path) -> list[str]:
    """Return the policies that a file names in its name or its code."""
    stem = IN_IDENTIFIER.findall(path.stem.lower())
    return [*stem, *named_in(tree(path))]


def named_in(module: ast.Module) -> Iterator[str]:
    """Yield the policies that code names, in texts and identifiers."""
    told = docstrings(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield from (f"line {node.lineno}: {found}" for found in IN_TEXT.findall(node.value))
        for text in identifiers(node):
            if IN_IDENTIFIER.search(HUMP.sub("_", text).lower()):
                yield f"line {getattr(node, 'lineno', 0)}: {text}"


def identifiers(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name():
            yield node.id
        case ast.Attribute():
            yield node.attr
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.arg() | ast.keyword():
            yield node.arg or ""
        case ast.ImportFrom():
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        case ast.Import():
            yield from (part for alias in node.names for part in alias.name.split("."))


class TestPolicies:
    def test_are_not_named_in_other_code(self) -> None:
        assert {
            name_of(path): lies
            for path in python_files()
            if is_held(path) and (lies := named(path))
        } == {}

    def test_are_not_named_in_templates_or_scripts(self) -> None:
        lies = [
            name_of(path)
            for path in files()
            if name_of(path).startswith(("templates/", "static/"))
            and path.suffix in (".html", ".js")
            and "/vendor/" not in name_of(path)
            and IN_TEXT.search(path.read_text(encoding="utf-8"))
        ]
        assert lies == []

    def test_check_detects_policy_names(self) -> None:
        code = 'import a.ltgf\nclass KeptLtgf: pass\nx = y.policy == "oef"\nz = "over Gavel too"\n'
        assert len(list(named_in(ast.parse(code)))) == 4
        assert not list(named_in(ast.parse('"""As OEF has it."""\ncoefficient = "fifos"')))

    def test_every_exception_is_needed(self) -> None:
        for prefix in EXCEPT:
            assert any(named(path) for path in python_files(prefix)), prefix


class TestPolicyTexts:
    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_are_complete_sentences(self, name: str) -> None:
        policy = POLICIES[name]
        assert policy.name == name
        for text in (policy.promise, policy.order_text):
            assert text.endswith(".")
            assert "eq." not in text
        assert policy.title
        assert not policy.title.endswith(".")
