"""Keep only the first test of each file, as a plugin for tests that pass without mutants."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all tests of a file but the first."""
    files: set[str] = set()
    others: list[pytest.Item] = []
    for item in tuple(items):
        file = item.nodeid.partition("::")[0]
        if file in files:
            items.remove(item)
            others.append(item)
        files.add(file)
    config.hook.pytest_deselected(items=others)
