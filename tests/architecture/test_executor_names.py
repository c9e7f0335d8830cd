"""Test that only an executor's module and the registry name it; other code reads its traits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scheduling.engine.executors.base import EXECUTORS

from .sources import files, name_of, python_files, tree

PREFIXES = ("portal/", "scheduling/", "billing/", "tenants/", "core/src/", "client/src/")
EXCEPT = {
    "scheduling/engine/executors/base.py": "the registry",
    "scheduling/engine/executors/slurm/": "an executor of several modules",
    "scheduling/models/cluster.py": "what a pool has that names none",
    "scheduling/migrations/": "what was",
    "portal/demo/": "the demo's pools",
    "portal/embedded/": "processes, which know no executor",
}
NAMES = "|".join(sorted(EXECUTORS))
# Both are everyday words: a name is a text by itself, quoted, or next to the word "executor".
IN_TEXT = re.compile(rf"^(?:{NAMES})$|([\"'`])(?:{NAMES})\1|\bexecutor\W{{1,3}}(?:{NAMES})\b")
IN_IDENTIFIER = re.compile(rf"^(?:is_)?(?:{NAMES})(?:_executor)?$", re.IGNORECASE)


def is_held(path: Path) -> bool:
    name = name_of(path)
    return name.startswith(PREFIXES) and not name.startswith(tuple(EXCEPT))


def named_in(module: ast.Module) -> Iterator[str]:
    """Yield the executors that code names, in texts except docstrings, and in identifiers."""
    statements = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in statements and IN_TEXT.search(node.value):
                yield f"line {node.lineno}: {node.value[:60]}"
        elif isinstance(node, ast.Name) and IN_IDENTIFIER.search(node.id):
            yield f"line {node.lineno}: {node.id}"


class TestExecutors:
    def test_are_not_named_in_other_code(self) -> None:
        assert {
            name_of(path): lies
            for path in python_files()
            if is_held(path) and (lies := list(named_in(tree(path))))
        } == {}

    def test_are_not_named_in_templates(self) -> None:
        lies = [
            name_of(path)
            for path in files()
            if name_of(path).startswith("templates/")
            and path.suffix == ".html"
            and re.search(rf"executor\W+(?:{NAMES})\b", path.read_text(encoding="utf-8"))
        ]
        assert lies == []

    def test_check_detects_executor_names(self) -> None:
        code = (
            'a = pool.executor == "local"\n'
            "b = \"WHERE executor = 'virtual'\"\n"
            'VIRTUAL = c\nd = f"has the executor local: {a}"\n'
        )
        assert len(list(named_in(ast.parse(code)))) == 4
        code = '"""As `local` has it."""\na = "local time of virtual clusters"\n'
        assert not list(named_in(ast.parse(code)))

    def test_every_exception_is_needed(self) -> None:
        for prefix in EXCEPT:
            assert any(list(named_in(tree(path))) for path in python_files(prefix)), prefix
