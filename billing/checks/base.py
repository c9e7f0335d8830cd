"""What a check answers, and the one query helper that the checks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

# Enough to see what is wrong; the count says how much.
SHOWN = 20


@dataclass(slots=True)
class CheckReport:
    """How many things were looked at, and what is wrong with them."""

    checked: int = 0
    violations: list[str] = field(default_factory=list)
    hidden: int = 0

    def wrong(self, what: str) -> None:
        """Note a violation; after the first ones they are only counted."""
        if len(self.violations) < SHOWN:
            self.violations.append(what)
            return
        self.hidden += 1
        self.violations[SHOWN - 1 :] = [f"... and {self.hidden + 1} more"]


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def count(table: str) -> int:
    """Return the number of rows of one of our tables."""
    return int(rows(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - names are constants


def report_of(checked: int, wrong: Sequence[str]) -> CheckReport:
    """Return a report from a list of violations."""
    report = CheckReport(checked)
    for what in wrong:
        report.wrong(what)
    return report
