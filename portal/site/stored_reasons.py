"""Reasons that the core stores with rounds in English, for the catalogue of the rounds' pages."""

import ast
from collections.abc import Iterator
from inspect import getsource
from types import ModuleType

from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.fairness import declared, measure

# Variables of the modules that measure a round's properties: why one was not measured.
VARIABLES = {"why", "untried"}


def stored_reasons() -> Iterator[str]:
    """Yield why parts of a decision were not applied, and why properties were not measured."""
    yield from map(str, SupersededReason)
    for module in (measure, declared):
        yield from _assigned(module)


def _assigned(module: ModuleType) -> Iterator[str]:
    """Yield the constants that a module assigns to the variables; texts with numbers are none."""
    for node in ast.walk(ast.parse(getsource(module))):
        is_reason = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in VARIABLES
        if is_reason and not any(isinstance(part, ast.JoinedStr) for part in ast.walk(node)):
            yield from (
                str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)
            )
