"""All small changes of a file: the operators of mutmut, and a few more.

mutmut parses the file and proposes replacements. The changed file is written as a whole, so that
constants and decorated functions are changed too. Texts of several words, log lines and error
messages are left out, because no test should check them.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal, operator_string
from mutmut.mutation.pragma_handling import IgnoredCode

SQL = re.compile(r"\s*(--.*\s+)*(SELECT|INSERT|UPDATE|DELETE|WITH|FROM|WHERE|AND)\b")
COMPARED = r"\b((?:WHERE|AND|OR|ON|WHEN|NOT)\s+\(?[\w.]+\s*)"
SQL_SWAPS = (
    (re.compile(r"(?<=\s)AND(?=\s)"), "OR"),
    (re.compile(r"(?<=\s)OR(?=\s)"), "AND"),
    (re.compile(COMPARED + r"=(?=\s)"), r"\1<>"),
    (re.compile(r"(?<=\s)<(?=\s)"), "<="),
    (re.compile(r"(?<=\s)>(?=\s)"), ">="),
    (re.compile(r"(?<=\s)<=(?=\s)"), "<"),
    (re.compile(r"(?<=\s)>=(?=\s)"), ">"),
    (re.compile(r"\bIS NULL\b"), "IS NOT NULL"),
    (re.compile(r"\bIS NOT NULL\b"), "IS NULL"),
    (re.compile(r"(?<=\s)IN(?=\s*\()"), "NOT IN"),
    (re.compile(r"(?<=\s)\+(?=\s)"), "-"),
    (re.compile(r"(?<=\s)-(?=\s)"), "+"),
    (re.compile(r"\bFOR (NO KEY )?UPDATE\b( OF \w+)?( SKIP LOCKED)?"), ""),
    (re.compile(r" SKIP LOCKED\b"), ""),
    (re.compile(r"\bORDER BY [\w.]+(, [\w.]+)*"), ""),
)
NO_BEHAVIOUR = m.Call(
    func=m.Attribute(value=m.Name("log") | m.Name("structlog") | m.Call(func=m.Name("super")))
) | m.Assign(targets=[m.AssignTarget(target=m.Name("log") | m.Name("__all__"))])


@dataclass(frozen=True)
class Change:
    """A file with a single change."""

    file: str
    line: int
    diff: str
    text: str


def swap_sql(node: cst.SimpleString) -> Iterator[cst.SimpleString]:
    """Change one comparison, conjunction, lock or order of a statement at a time."""
    if not SQL.match(node.raw_value):
        return
    for pattern, new in SQL_SWAPS:
        for found in pattern.finditer(node.value):
            changed = node.value[: found.start()] + found.expand(new) + node.value[found.end() :]
            yield node.with_changes(value=changed)


def mark_word(node: cst.BaseString) -> Iterator[cst.BaseString]:
    """Change an identifier in a text: a column, a state, a key."""
    if isinstance(node, cst.SimpleString) and not re.search(r"\s", node.raw_value):
        yield from list(operator_string(node))[:1]


def drop_element(node: cst.Set) -> Iterator[cst.Set]:
    """Remove one element of a set literal."""
    if len(node.elements) > 1:
        for index in range(len(node.elements)):
            yield node.with_changes(elements=[*node.elements[:index], *node.elements[index + 1 :]])


def drop_argument(node: cst.Call) -> Iterator[cst.Call]:
    """Replace an argument by None, because a call without it mostly fails at once."""
    for changed in operator_arg_removal(node):
        if len(changed.args) == len(node.args):
            yield changed


OURS: dict[Any, Any] = {operator_string: mark_word, operator_arg_removal: drop_argument}
OPERATORS = (
    *((of, OURS.get(operator, operator)) for of, operator in mutation_operators),
    (cst.SimpleString, swap_sql),
    (cst.Set, drop_element),
)


class _Visitor(MutationVisitor):
    """mutmut's visitor, but with decorated functions, and without texts that no test checks."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Raise | cst.Decorator | cst.Import | cst.ImportFrom):
            return True
        if m.matches(node, NO_BEHAVIOUR):
            return True
        if isinstance(node, cst.FunctionDef) and node.decorators:
            return False
        return bool(super()._skip_node_and_children(node))


def draw_changes(root: Path, files: Sequence[str], size: int, seed: str) -> list[Change]:
    """Return `size` changes of files in order, or all if there are fewer or it is 0.

    Equal seeds and texts give equal changes.
    """
    found = [(file, *each) for file in files for each in _read_mutations(root / file)]
    order = list(range(len(found)))
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret
    drawn: dict[tuple[str, str], tuple[int, Change]] = {}
    for index in order:
        file, module, mutation = found[index]
        changed = module.deep_replace(mutation.original_node, mutation.mutated_node)
        text = changed.code if isinstance(changed, cst.Module) else module.code
        if text != module.code and _compiles(text):
            drawn[file, text] = index, _describe(file, module.code, text)
        if len(drawn) == size:
            break
    return [change for _, change in sorted(drawn.values(), key=itemgetter(0))]


def _read_mutations(path: Path) -> list[tuple[cst.Module, Mutation]]:
    wrapper = MetadataWrapper(cst.parse_module(path.read_text()))
    visitor = _Visitor(OPERATORS, IgnoredCode(set(), set(), set()))
    wrapper.visit(visitor)
    return [(wrapper.module, mutation) for mutation in visitor.mutations]


def _compiles(text: str) -> bool:
    try:
        compile(text, "changed", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _describe(file: str, before: str, after: str) -> Change:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    line = re.match(r"@@ -(\d+)", lines[2])
    assert line is not None
    return Change(file, int(line[1]), "\n".join(lines[3:]), after)
