"""Tables of runs of UniSched and of the policies that it is compared with."""

from collections.abc import Iterable, Mapping
from typing import Any

from evenshare_research.reproduce.model import ReportTable
from evenshare_research.reproduce.shown import Column, figures_table, number, percent

Row = Mapping[str, Any]
MISS, BEST_EFFORT = "deadline_miss_rate", "best_effort_jct_s"
STRICT, SOFT = "strict_miss_rate", "soft_miss_rate"
COLUMNS: tuple[Column, ...] = (
    ("miss rate", MISS, percent),
    ("strict missed", STRICT, percent),
    ("soft missed", SOFT, percent),
    ("best-effort JCT s", BEST_EFFORT, number),
    ("suspensions per SLO job", "slo_suspensions", lambda value: number(value, 2)),
    ("JCT s", "jct_s", number),
)


def runs_table(title: str, rows: Iterable[tuple[str, Row]]) -> ReportTable:
    named = list(rows)
    return figures_table(title, named, columns_of([row for _, row in named]))


def columns_of(rows: Iterable[Row]) -> list[Column]:
    """Return the columns, without strict and soft misses if no deadline is soft."""
    if any(row[SOFT] is not None for row in rows):
        return list(COLUMNS)
    return [column for column in COLUMNS if column[1] not in (STRICT, SOFT)]


def noise_table(rows: Mapping[tuple[str, str], Row]) -> ReportTable:
    """Return the miss rates of each policy, by the error of the estimates."""
    errors, names = (list(dict.fromkeys(parts)) for parts in zip(*rows, strict=True))
    cells = [
        [f"`{name}`", *(percent(rows[error, name][MISS]) for error in errors)] for name in names
    ]
    return ReportTable("Miss rates in MIX2 with wrong estimates", ["", *errors], cells)
