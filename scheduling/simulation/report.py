"""A run's results as one object, as CSV, and as one self-contained page with figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import log10
from typing import Any

from scheduling.domain.values import SECOND_US
from scheduling.simulation.figures import Figures

COLORS = ("#3b6fd4", "#c2571a", "#2e8b57", "#9a3fb5", "#b8860b", "#c2334d")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 250, 44, 34, 12
COLUMNS = ("job_id", "tenant", "gpus", "submit_s", "start_s", "end_s", "queue_s", "rho")
POINTS = 200  # at most so many of a curve are drawn

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fff; --line: #c9cfd9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --paper: #14181f; --line: #3a4250; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
figure { display: inline-block; margin: 0 1rem 1.5rem 0; vertical-align: top; }
figcaption { font-weight: 600; }
svg text { fill: var(--ink); font-size: 11px; }
svg .axis { stroke: var(--line); fill: none; }
svg path { fill: none; stroke-width: 1.8; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
"""


@dataclass(slots=True)
class Result:
    """One policy's run, as it is told."""

    policy: str
    figures: Figures
    rounds: int
    cpu_s: float
    sha256: str
    jobs: int
    decide_s: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """The object of `--json`: shares as fractions of 1, null where a figure does not apply."""
        told = self.figures
        return {
            "policy": self.policy,
            "jobs": self.jobs,
            "avg_jct_s": told.mean("jct_s"),
            "avg_queue_s": told.mean("queue_s"),
            "avg_slowdown": told.mean("slowdown"),
            "sharing_loss_jobs": told.sharing_loss,
            "tenant_unfair_intervals": told.unfair_intervals,
            "tenant_deficit": told.deficit,
            "late_vs_fair_reference": told.late,
            "gpu_utilisation": told.utilisation,
            "waste": told.waste,
            "preemptions": told.preemptions,
            "deadline_miss_rate": told.deadline_miss_rate,
            "revenue_fairness": told.revenue_fairness,
            "rounds": self.rounds,
            "cpu_s": round(self.cpu_s, 3),
            "sha256": self.sha256,
        }


def jobs_csv(result: Result, tenants: dict[int, str]) -> str:
    """Return one line per job that did all its work, in order of submission."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in result.figures.jobs:
        job = row.job
        rho = "" if row.rho is None else f"{row.rho:.6f}"
        writer.writerow(
            [
                *(job.name or job.id, tenants[job.tenant], job.gpus),
                *(_number(job.submitted_us / SECOND_US), _number(row.start_s)),
                *(_number(row.end_s), _number(row.queue_s), rho),
            ]
        )
    return out.getvalue()


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def page(title: str, results: Sequence[Result]) -> str:
    """Return a self-contained page: a table, and figures like the papers'."""
    drawn = [result for result in results if result.figures.jobs]
    curves = [
        ("rho of jobs, share below", _cdfs(drawn, "rho", most=3.0), False),
        ("slowdown, share below (log)", _cdfs(drawn, "slowdown"), True),
        ("job completion time in s, share below (log)", _cdfs(drawn, "jct_s"), True),
        ("lowest rho of a tenant by the hour", [_hours(one, 0) for one in drawn], False),
        ("GPUs at useful work by the hour, share", [_hours(one, 1) for one in drawn], False),
    ]
    times = [_cdf(sorted(one.decide_s)) for one in drawn]
    if any(times):
        curves.append(("decision time in s, share below (log)", times, True))
    figures = "".join(_figure(name, lines, log=log) for name, lines, log in curves)
    keys = " ".join(
        f'<span class="key" style="background:{COLORS[i % len(COLORS)]}"></span>'
        f" {escape(one.policy)}"
        for i, one in enumerate(drawn)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{_table(results)}<p>{keys}</p>{figures}</body></html>\n"
    )


def _table(results: Sequence[Result]) -> str:
    rows = [result.row() for result in results]
    names = [name for name in (rows[0] if rows else {}) if name != "sha256"]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: Any) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - a dash in a table's cell
    if isinstance(value, float):
        return f"{value:,.4g}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


Line = list[tuple[float, float]]


def _cdfs(results: Sequence[Result], name: str, most: float = float("inf")) -> list[Line]:
    lines = []
    for result in results:
        values = [getattr(row, name) for row in result.figures.jobs]
        lines.append(_cdf(sorted(min(value, most) for value in values if value is not None)))
    return lines


def _cdf(values: Sequence[float]) -> Line:
    """Points (value, share of values up to it)."""
    if not values:
        return []
    last = len(values) - 1
    picks = sorted({last * i // (POINTS - 1) for i in range(POINTS)})
    return [(values[i], (i + 1) / len(values)) for i in picks]


def _hours(result: Result, column: int) -> Line:
    hours = result.figures.hours
    step = max(1, len(hours) // POINTS)
    return [
        (float(index), min(2.0, value))
        for index, row in enumerate(hours)
        if index % step == 0 and (value := row[column]) is not None
    ]


def _figure(name: str, lines: Sequence[Line], *, log: bool) -> str:
    points = [point for line in lines for point in line if point[0] > 0 or not log]
    if not points:
        return ""
    scale = log10 if log else float
    low, high = (scale(pick(x for x, _ in points)) for pick in (min, max))
    top = max(1.0, *(y for _, y in points))
    span = (high - low) or 1.0

    def at(x: float, y: float) -> str:
        px = LEFT + (scale(x) - low) / span * (WIDTH - LEFT - 10)
        py = HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP)
        return f"{px:.1f},{py:.1f}"

    paths = "".join(
        f'<path stroke="{COLORS[i % len(COLORS)]}" d="M'
        + "L".join(at(x, y) for x, y in line if x > 0 or not log)
        + '"/>'
        for i, line in enumerate(lines)
        if line
    )
    ends = (10**low, 10**high) if log else (low, high)
    return (
        f'<figure><svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(name)}</title>"
        f'<path class="axis" d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - 10}"/>{paths}'
        f'<text x="4" y="{TOP + 8}">{top:.3g}</text><text x="4" y="{HEIGHT - BOTTOM}">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 14}">{ends[0]:.4g}</text>'
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 14}" text-anchor="end">{ends[1]:.4g}</text>'
        f"</svg><figcaption>{escape(name)}</figcaption></figure>"
    )
