"""Numbers as the report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenshare_research.reproduce.model import ReportTable

DASH = "-"


def percent(value: float | None, places: int = 2) -> str:
    """0.0123 -> "1.23 %"."""
    return DASH if value is None else f"{100 * value:,.{places}f} %"


def number(value: float | None, places: int = 0) -> str:
    """1234.5 -> "1,234"."""
    return DASH if value is None else f"{value:,.{places}f}"


def thousandths(value: float | None) -> str:
    """1.0564 -> "1.056"."""
    return number(value, 3)


def rho_curve(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The distribution of rho over a run's jobs, for a chart; rho cut at 2."""
    return _curve(name, [min(value, 2) for value in row["rho_quantiles"]])


def slowdown_curve(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The distribution of slowdowns over a run's jobs, cut at 5."""
    return _curve(name, [min(value, 5) for value in row["slowdown_quantiles"]])


def _curve(name: str, values: Sequence[float]) -> dict[str, Any]:
    last = max(1, len(values) - 1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name.replace("`", ""),
        "x": values,
        "y": [step / last for step in range(len(values))],
    }


# Of a run of `philly.run`: the column, the figure's name, how it is shown.
COLUMNS = (
    ("sharing loss", "sharing_loss_jobs", percent),
    ("hours under 0.99", "tenant_unfair_intervals", percent),
    ("deficit", "tenant_deficit", percent),
    ("daily deficit", "tenant_daily_deficit", percent),
    ("slowdown", "slowdown", thousandths),
    ("p99", "slowdown_p99", lambda value: number(value, 2)),
    ("JCT s", "jct_s", number),
    ("use", "gpu_utilisation", lambda value: percent(value, 1)),
    ("waste", "waste", percent),
    ("late", "late_vs_fair_reference", percent),
)


def figures_table(title: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> ReportTable:
    """The figures of runs beside each other; docs/metrics.md says what they are."""
    return ReportTable(
        title,
        ["", *(column for column, _, _ in COLUMNS)],
        [[name, *(show(row[field]) for _, field, show in COLUMNS)] for name, row in rows],
    )
