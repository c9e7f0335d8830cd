"""The report of a check, and the shared query helper."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tenants.sql import fetch_rows

# Number of violations that a report lists; the others are only counted.
SHOWN = 20


@dataclass(slots=True)
class CheckReport:
    """The number of checked items, and their violations."""

    checked: int = 0
    violations: list[str] = field(default_factory=list)
    hidden: int = 0
    name: str = ""

    @property
    def ok(self) -> bool:
        """Return whether there is no violation."""
        return not self.violations

    def wrong(self, what: str) -> None:
        """Add a violation. After the first `SHOWN`, violations are only counted."""
        if len(self.violations) < SHOWN:
            self.violations.append(what)
            return
        self.hidden += 1
        self.violations[SHOWN - 1 :] = [f"... and {self.hidden + 1} more"]


def count(table: str) -> int:
    """Return the number of rows of one of our tables."""
    return int(fetch_rows(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - names are constants


def report_of(checked: int, wrong: Sequence[str]) -> CheckReport:
    """Return a report of `checked` items with these violations."""
    report = CheckReport(checked)
    for what in wrong:
        report.wrong(what)
    return report
