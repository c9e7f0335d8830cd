"""Test that each sentence occurs once, and each reason and refusal has its text in one table."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenshare_core.domain import reason_texts as catalogue
from evenshare_core.domain.deadlines import DeadlineLimit, PlanCause
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from portal.operate.text.audit import ACTION_TEXTS
from scheduling.engine.executors.local_usage import GpuState
from tenants.api.problems import PROBLEMS
from tests.architecture.sources import APPS, CORE, ROOT, name_of, python_files, tree

# The client's texts are compared separately, because it is installed without the portal.
PARTS = ((*(f"{app}/" for app in APPS), f"{CORE}/"), ("client/",))
# Copies that `make fields` writes.
COPIES = ("client/src/evenshare/cli/job_fields.py",)
LEAST_WORDS = 6
WORD = re.compile(r"[A-Za-z][A-Za-z'/-]*")
# Descriptions of fields, options or columns: two may be equal, and change independently.
ABOUT = {"description", "help", "help_text", "hint", "key_column"}
TABLES = {
    "WORDINGS": set(Reason),
    "ENDINGS": set(EndReason),
    "RULES": set(PreemptionRule),
    "LIMITS": set(DeadlineLimit),
    "CAUSES": set(PlanCause),
    "GPU_STATES": set(GpuState) - {GpuState.OK},
}


def texts(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the texts of some code and their lines, in f-strings with {} for values."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.keyword) and child.arg in ABOUT:
            continue
        if isinstance(child, ast.Call) and getattr(child.func, "id", "") == "about":
            continue
        if isinstance(child, ast.Call) and getattr(child.func, "id", "") == "ngettext":
            yield from texts(ast.List(child.args[1:]))  # the forms of a text differ in their count
        elif isinstance(child, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else "{}" for part in child.values
            )
            yield "".join(map(str, parts)), child.lineno
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            if not isinstance(node, ast.Expr):  # a docstring
                yield child.value, child.lineno
        else:
            yield from texts(child)


def sentences(text: str) -> Iterator[str]:
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        words = [word.strip(".,;:!?()`\"'").lower() for word in sentence.split()]
        if sum(WORD.fullmatch(word) is not None for word in words) >= LEAST_WORDS:
            yield " ".join(words)


def twice(found: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the places of each repeated sentence; `found` has (text, place)."""
    places = defaultdict(list)
    for text, place in found:
        for sentence in sentences(text):
            places[sentence].append(place)
    return {sentence: where for sentence, where in places.items() if len(where) > 1}


class TestSentences:
    @pytest.mark.parametrize("part", PARTS)
    def test_occur_once_in_code(self, part: tuple[str, ...]) -> None:
        paths = [path for path in python_files(*part) if name_of(path) not in COPIES]
        found = (
            (text, f"{name_of(path)}:{line}")
            for path in paths
            if "/migrations/" not in name_of(path)
            for text, line in texts(tree(path))
        )
        assert twice(found) == {}

    def test_check_detects_repeated_sentence(self) -> None:
        code = 'say("No. Nobody has asked for it yet.")\nsay(f"nobody has asked for it yet")'
        found = twice((text, str(line)) for text, line in texts(ast.parse(code)))
        assert found == {"nobody has asked for it yet": ["1", "2"]}


class TestCatalogue:
    @pytest.mark.parametrize("table", TABLES)
    def test_has_entry_for_each_reason(self, table: str) -> None:
        assert set(getattr(catalogue, table)) == TABLES[table]

    @pytest.mark.parametrize("path", [catalogue.__file__, f"{ROOT}/tenants/api/problems.py"])
    def test_ids_are_unique(self, path: str) -> None:
        for node in ast.walk(ast.parse(Path(path).read_text())):
            keys = [ast.unparse(key) for key in getattr(node, "keys", ()) if key is not None]
            assert len(keys) == len(set(keys))

    def test_has_entry_for_each_refusal(self) -> None:
        raised = {
            node.args[0].value
            for path in python_files(*PARTS[0])
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem"
            if node.args and isinstance(node.args[0], ast.Constant)
        }
        assert raised <= set(PROBLEMS)

    def test_has_text_for_each_audited_action(self) -> None:
        written = {
            node.args[1].value
            for path in python_files(*PARTS[0])
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "write_audit"
            if isinstance(node.args[1], ast.Constant)
        }
        assert written <= set(ACTION_TEXTS)

    def test_matches_api_document(self) -> None:
        table = (ROOT / "docs/api.md").read_text().split("| status | `reason_code` |")[1]
        rows = [line.split("|") for line in table.split("\n\n")[0].splitlines()[2:]]
        told = {
            (code, status)
            for row in rows
            for status in re.findall(r"\d{3}", row[1])
            for code in re.findall(r"`(\w+)`", row[2])
        }
        assert {(code, str(status)) for code, (status, _) in PROBLEMS.items()} <= told
