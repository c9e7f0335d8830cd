"""Test that only the engine's writer changes leases, slots, terms and lease events."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITERS = {
    "scheduling/engine/apply.py",
    "scheduling/engine/observe.py",
    "scheduling/engine/revoke.py",
}
# Steps and rows of the writers; no other code calls them.
HELPERS = {
    "scheduling/engine/events.py",
    "scheduling/engine/grants.py",
    "scheduling/engine/write.py",
}
MODELS = {"Lease", "LeaseSlot", "LeaseTerm", "LeaseEvent", "Round", "RoundBlob"}
CHANGES = {
    *("create", "bulk_create", "update", "bulk_update", "delete"),
    *("get_or_create", "update_or_create", "insert_rows"),
}
TABLES = ("scheduling_lease", "scheduling_round")


def sources() -> list[Path]:
    return [
        path
        for package in ("scheduling", "billing", "tenants", "portal")
        for path in (ROOT / package).rglob("*.py")
        if "migrations" not in path.parts
    ]


def writes(path: Path) -> list[str]:
    """Return changes through models, through `insert_rows`, and in SQL texts."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name, subjects = _called(node)
            if name in CHANGES and any(_protected(subject) for subject in subjects):
                found.append(f"line {node.lineno}: {ast.unparse(node)[:60]}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for verb, table in itertools.pairwise(node.value.split()):
                if verb in ("UPDATE", "INTO", "COPY") and table.startswith(TABLES):
                    found.append(f"line {node.lineno}: {verb} {table}")
    return found


def _called(call: ast.Call) -> tuple[str, list[str]]:
    """Return the function's name, and the names and first text in its arguments."""
    first = [a.value for a in call.args[:1] if isinstance(a, ast.Constant)]
    texts = [value for value in first if isinstance(value, str)]
    if isinstance(call.func, ast.Attribute):
        names = [part.id for part in ast.walk(call.func) if isinstance(part, ast.Name)]
        return call.func.attr, names + texts
    return getattr(call.func, "id", ""), texts


def _protected(subject: str) -> bool:
    return subject in MODELS or subject.startswith(TABLES)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_writer_changes_leases_and_events(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in WRITERS | HELPERS:
        assert writes(path) == []


@pytest.mark.parametrize("name", sorted(WRITERS | HELPERS))
def test_check_detects_changes_in_writers(name: str) -> None:
    assert writes(ROOT / name)


def test_only_writers_draft_events() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for path in sources()
        if "scheduling.engine.events import" in path.read_text(encoding="utf-8")
    }
    others = ("write", "idle_gpus", "idle_sessions")
    assert importers == WRITERS | {f"scheduling/engine/{name}.py" for name in others}
