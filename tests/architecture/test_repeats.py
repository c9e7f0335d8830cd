"""Test that a docstring adds to its name, and that `fmt` directives have a reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import name_of, python_files, tree

APPS = ("billing/", "portal/", "scheduling/", "tenants/")
PRODUCT = (*APPS, "benchmarks/", "client/", "core/", "research/")
# Their docstrings are the API's descriptions of operations.
VERBS = {"get", "post", "put", "patch", "delete"}
SMALL = re.compile(
    r"\b(?:a|all|an|and|any|are|as|at|be|by|each|every|find|for|from|get|give|has|have|here|in|into"
    r"|is|its?|make|no|not|of|on|one|or|out|returns?|says?|so|tell|than|that|the|their|them|there"
    r"|they|this|to|what|when|where|whether|which|who|whose|with)\b"
)
ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "e", "y")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def stem(word: str) -> str:
    end = next((end for end in ENDINGS if word.endswith(end) and len(word) > len(end) + 2), "")
    return word.removesuffix(end)


def stems(*texts: str) -> set[str]:
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", " ".join(texts)).replace("'s", "")
    return {stem(word) for word in re.findall(r"[a-z]+", parted.lower())}


def functions(node: ast.AST, owner: str = "") -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield owner, child
        yield from functions(child, child.name if isinstance(child, ast.ClassDef) else owner)


def repeats(owner: str, function: Function) -> bool:
    """Return whether all words of the docstring are in the name, the class or the arguments."""
    said = ast.get_docstring(function)
    if not said or re.search(r"\d|None|\n", said) or function.name in VERBS:
        return False
    named = [argument.arg for argument in function.args.args + function.args.kwonlyargs]
    returned = ast.unparse(function.returns) if function.returns else ""
    return not stems(SMALL.sub("", said.lower())) - stems(owner, function.name, *named, returned)


class TestDocstrings:
    def test_add_to_function_name(self) -> None:
        found = [
            f"{name_of(path)}:{function.lineno} {function.name}"
            for path in python_files()
            for owner, function in functions(tree(path))
            if repeats(owner, function)
        ]
        assert found == []

    def test_check_detects_repeated_name(self) -> None:
        [(owner, function)] = functions(
            ast.parse('class Plan:\n    def key(self): "Return the key of a plan."')
        )
        assert repeats(owner, function)


class TestFormatDirectives:
    def test_have_reason(self) -> None:
        silent = [
            f"{name_of(path)}: {line.strip()}"
            for path in python_files(*PRODUCT)
            if "/migrations/" not in name_of(path)
            for line in path.read_text("utf-8").splitlines()
            if re.search(r"# fmt: (skip|off)$", line)
        ]
        assert silent == []
