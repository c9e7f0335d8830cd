"""Test that the examples, names and list of checks in docs/money.md match the code."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from billing.checks import CHECKS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "money.md"
TEXT = PAGE.read_text(encoding="utf-8")
DOTTED = sorted(set(re.findall(r"`((?:billing|scheduling|tenants)\.[\w.]+)`", TEXT)))
PATHS = sorted(set(re.findall(r"`((?:billing|tests)/[\w/.]+)`", TEXT)))


class TestMoneyPage:
    @pytest.mark.parametrize(
        "page", [PAGE, ROOT / "docs" / "recompute" / "statement.md"], ids=lambda page: page.name
    )
    def test_examples_run(self, page: Path) -> None:
        result = doctest.testfile(str(page), module_relative=False)
        assert (result.failed, result.attempted > 4) == (0, True)

    @pytest.mark.parametrize("name", DOTTED)
    def test_named_symbols_exist(self, name: str) -> None:
        module, _, symbol = name.rpartition(".")
        assert hasattr(importlib.import_module(module), symbol)

    @pytest.mark.parametrize("path", PATHS)
    def test_named_files_exist(self, path: str) -> None:
        assert (ROOT / path).is_file()

    def test_lists_every_check(self) -> None:
        table = TEXT[TEXT.index("| check |") :]
        assert set(re.findall(r"`(\w+)`", table)) == set(CHECKS)
