"""Formatting of numbers and charts in the report."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evenshare_research.reproduce.model import ReportChart, ReportTable

DASH = "-"


def percent(value: float | None, places: int = 2) -> str:
    """Format 0.0123 as "1.23 %"."""
    return DASH if value is None else f"{100 * value:,.{places}f} %"


def number(value: float | None, places: int = 0) -> str:
    """Format 1234.5 as "1,234"."""
    return DASH if value is None else f"{value:,.{places}f}"


def thousandths(value: float | None) -> str:
    """Format 1.0564 as "1.056"."""
    return number(value, 3)


def signed(value: float) -> str:
    """Format 0.0123 as "+1.2 %"."""
    return f"{100 * value:+.1f} %"


def listed(values: Iterable[float], places: int = 2) -> str:
    """Format numbers, separated by commas."""
    return ", ".join(number(value, places) for value in values)


def curve(name: str, x: Sequence[Any], y: Sequence[float], mode: str = "lines") -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "name": name.replace("`", ""), "x": x, "y": y}


def dotted(name: str, x: Sequence[Any], y: Sequence[float]) -> dict[str, Any]:
    """Return a line chart with a mark at each point."""
    return curve(name, x, y, "lines+markers")


def bars(name: str, x: Sequence[Any], y: Sequence[float]) -> dict[str, Any]:
    return {"type": "bar", "name": name.replace("`", ""), "x": x, "y": y}


def rho_chart(title: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> ReportChart:
    """Return the distribution of rho over the jobs of each run. Values are limited to 2."""
    return _distributions(title, "rho", 2, rows)


def slowdown_chart(title: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> ReportChart:
    """Return the distribution of slowdowns over the jobs of each run. Values are limited to 5."""
    return _distributions(title, "slowdown", 5, rows)


def _distributions(
    title: str, figure: str, most: int, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> ReportChart:
    curves = []
    for name, row in rows:
        values = [min(value, most) for value in row[f"{figure}_quantiles"]]
        last = max(1, len(values) - 1)
        curves.append(curve(name, values, [step / last for step in range(len(values))]))
    return ReportChart(title, f"{figure}, cut at {most}", "share of jobs with no more", curves)


# Title, name of the figure, format.
Column = tuple[str, str, Callable[[float | None], str]]
# Columns for runs of `philly.run`.
COLUMNS: tuple[Column, ...] = (
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
# The columns of the papers' claims, without those that no claim reads.
CLAIMED = tuple(
    column for column in COLUMNS if column[0] not in {"daily deficit", "p99", "use", "late"}
)


def figures_table(
    title: str,
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    columns: Sequence[Column] = COLUMNS,
) -> ReportTable:
    """Return a table with the figures of runs, which docs/metrics.md defines."""
    return ReportTable(
        title,
        ["", *(column for column, _, _ in columns)],
        [[name, *(show(row[field]) for _, field, show in columns)] for name, row in rows],
    )
