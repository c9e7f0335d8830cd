"""Test that one module writes all transfers and entries, and that money modules use no float."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
APPS = ("billing", "core", "portal", "scheduling", "tenants")
WRITES = {
    "acreate", "aget_or_create", "bulk_create", "bulk_update", "create", "delete",
    "get_or_create", "save", "update", "update_or_create",
}  # fmt: skip
SQL = re.compile(
    r"\b(insert\s+into|update|delete\s+from|truncate|copy)\s+(only\s+)?"
    r"\"?billing_(transfer|entry)\b",
    re.IGNORECASE,
)


def sources() -> list[Path]:
    return [
        path
        for app in APPS
        for path in sorted((ROOT / app).rglob("*.py"))
        if "migrations" not in path.parts
    ]


def writers(tree: ast.AST) -> Iterator[str]:
    """Yield calls that write a Transfer or an Entry by its model, an instance or SQL text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if SQL.search(node.value):
                yield "SQL"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("Entry", "Transfer", "models.Entry", "models.Transfer"):
                yield called
            if (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in WRITES
                and re.search(r"\b(Entry|Transfer)\.objects|\bentries\.|\btransfers\.", called)
            ):
                yield called


class TestLedger:
    def test_is_only_writer_of_transfers_and_entries(self) -> None:
        found = {
            str(path.relative_to(ROOT))
            for path in sources()
            if any(writers(ast.parse(path.read_text(encoding="utf-8"))))
        }
        assert found == {"billing/ledger.py"}

    @pytest.mark.parametrize(
        "line",
        [
            "Entry.objects.create(amount=1)",
            "Entry(amount=1).save()",
            "Transfer.objects.filter(pk=1).update(code='x')",
            "transfer.entries.create(amount=1)",
            "cursor.execute('insert into billing_entry values (1)')",
            "cursor.execute('UPDATE billing_transfer SET code = 1')",
        ],
    )
    def test_check_detects_writers(self, line: str) -> None:
        assert list(writers(ast.parse(line)))


class TestMoney:
    @pytest.mark.parametrize(
        "name",
        [
            *("billing/ledger.py", "billing/metering"),
            *(f"core/src/evenshare_core/money/{name}" for name in ("fixed_point.py", "revenue")),
        ],
    )
    def test_uses_no_float(self, name: str) -> None:
        place = ROOT / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
                assert not (isinstance(node, ast.Name) and node.id == "float")
                assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))
