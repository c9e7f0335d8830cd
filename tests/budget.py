"""A pytest plugin that prints a run's cost: the ten dearest files, and each folder with its budget.

Seconds are worker-seconds: the time of each test with its fixtures, added up over all processes.
The budgets come from the table of docs/testing.md. They apply to whole runs of `make test` and
`make test-rest`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from heapq import nlargest
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "testing.md"
# Matches a row such as: | `tests/unit` | 150 | 300 |
ROW = re.compile(r"^\| `(tests/\w+)` \| ([\d,]+) \| ([\d,]+) \|", re.MULTILINE)
DEAREST = 10


class Spent:
    """Adds up the test reports; with several processes, the controller gets all reports."""

    def __init__(self, tier: str) -> None:
        self.tier = tier
        self.by_file: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a set-up, a call or a tear-down."""
        self.by_file[report.nodeid.partition("::")[0]] += report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print both tables, with a warning for each exceeded budget."""
        write = terminalreporter.write_line
        if len(self.by_file) < 2:
            return
        write(f"worker-seconds: {sum(self.by_file.values()):,.0f}; the dearest files:")
        for spent, path in nlargest(DEAREST, turned(self.by_file)):
            write(f"{spent:8.1f}  {path}")
        budgets = read_budgets(self.tier)
        by_folder: dict[str, float] = defaultdict(float)
        for path, spent in self.by_file.items():
            by_folder["/".join(path.split("/")[:2])] += spent
        for spent, folder in sorted(turned(by_folder), reverse=True) if budgets else ():
            budget = budgets.get(folder, 0)
            write(f"{spent:8.1f} of {budget:4d}  {folder}", yellow=spent > budget)
            if spent > budget:
                write(f"warning: {folder} passes its budget (docs/testing.md)", yellow=True)


def turned(spent: dict[str, float]) -> list[tuple[float, str]]:
    """Return (seconds, name), for sorting."""
    return [(seconds, name) for name, seconds in spent.items()]


def read_budgets(tier: str) -> dict[str, int]:
    """Return the worker-seconds of each folder in a whole run of a tier; empty for other runs."""
    column = {"test": 1, "rest": 2}.get(tier)
    if column is None:
        return {}
    rows = ROW.findall(DOCUMENT.read_text())
    return {row[0]: int(row[column].replace(",", "")) for row in rows}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Count only in the process that reports."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Spent(config.getoption("tier")))
