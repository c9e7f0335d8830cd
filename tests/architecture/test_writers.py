"""One door to write: leases, slots, terms and lease events change in the engine's writer alone."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITERS = {"scheduling/engine/apply.py", "scheduling/engine/observe.py"}
# Numbers and inserts drafts for the writers; called by nobody else.
HELPERS = {"scheduling/engine/events.py"}
TABLES = {"Lease", "LeaseSlot", "LeaseTerm", "LeaseEvent", "Round", "RoundBlob"}
CHANGES = {"create", "bulk_create", "update", "bulk_update", "delete", "get_or_create",
           "update_or_create"}  # fmt: skip
SQL_TABLES = ("scheduling_lease", "scheduling_leaseslot", "scheduling_round")


def sources() -> list[Path]:
    return [
        path
        for package in ("scheduling", "billing", "tenants", "portal")
        for path in (ROOT / package).rglob("*.py")
        if "migrations" not in path.parts
    ]


def writes(path: Path) -> list[str]:
    """Calls such as `Lease.objects.filter(...).update(...)`, and SQL that changes the tables."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names = {part.id for part in ast.walk(node.func) if isinstance(part, ast.Name)}
            if node.func.attr in CHANGES and names & TABLES:
                found.append(f"line {node.lineno}: {ast.unparse(node.func)}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            for verb, table in itertools.pairwise(words):
                if verb in ("UPDATE", "INTO") and table.startswith(SQL_TABLES):
                    found.append(f"line {node.lineno}: {verb} {table}")
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_writer_changes_leases_and_events(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    if name not in WRITERS | HELPERS:
        assert writes(path) == []


def test_the_check_sees_the_writers_own_changes() -> None:
    assert all(writes(ROOT / name) for name in WRITERS | HELPERS)


def test_events_are_drafted_by_the_writers_alone() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for path in sources()
        if "scheduling.engine.events import" in path.read_text(encoding="utf-8")
    }
    assert importers == WRITERS
