"""A run's results as an object, as CSV, and as a self-contained page with figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from evenshare_core.csv_cells import write_csv
from evenshare_core.simulation.charts import DASHES, POINTS, Chart, Line, cdf, figure, key
from evenshare_core.simulation.figures import LOSS_BELOW, UNFAIR_BELOW, Figures
from evenshare_core.units import CREDIT_MICRO, HOUR_US, SECOND_US

COLUMNS = ("job_id", "tenant", "gpus", "submit_s", "start_s", "end_s", "queue_s", "rho")
HOUR_COLUMNS = ("tenant", "hour", "deserved_gpu_s", "received_gpu_s", "deficit_gpu_s")
RHO_MOST = 3.0  # higher values are drawn as this value

_LIGHT = ("#2f62c9", "#b84e14", "#1f7a48", "#8d35a8", "#8a6a00", "#b82b45")
_DARK = ("#7aa5ff", "#f29a5c", "#63c98f", "#d48bea", "#e0bd4a", "#ff8296")
_SERIES = "".join(
    f".s{i} {{ stroke: var(--s{i}); stroke-dasharray: {dashes or 'none'}; }}\n"
    for i, dashes in enumerate(DASHES)
)


def _colors(colors: Sequence[str]) -> str:
    return " ".join(f"--s{i}: {color};" for i, color in enumerate(colors))


STYLE = f"""
:root {{ color-scheme: light dark; --ink: #1c2330; --paper: #fff; --line: #c9cfd9; --dim: #59647a;
  {_colors(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e9ef; --paper: #14181f; --line: #343c4a; --dim: #a3adbf; {_colors(_DARK)} }}
}}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 66rem; padding: 0 1rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.5rem; line-height: 1.25; margin: 0; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; }}
p {{ color: var(--dim); margin: .2rem 0 1.2rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: right;
  white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; min-width: 8rem; }}
details {{ margin-top: 1rem; }}
td:first-child {{ color: var(--dim); }}
.charts {{ display: grid; gap: 1.5rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }}
figure {{ margin: 0; }}
figcaption {{ color: var(--dim); min-height: 3em; }}
figcaption b {{ color: var(--ink); display: block; }}
figure svg {{ width: 100%; height: auto; display: block; }}
svg text {{ fill: var(--dim); font-size: 12px; }}
svg path {{ fill: none; stroke-width: 2; }}
svg .grid {{ stroke: var(--line); stroke-width: 1; opacity: .6; }}
svg .mark {{ stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }}
.key {{ display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; }}
{_SERIES}"""


@dataclass(slots=True)
class Result:
    """A policy's run in a report."""

    policy: str
    figures: Figures
    rounds: int
    cpu_s: float
    sha256: str
    jobs: int
    decide_s: list[float] = field(default_factory=list)
    tenants: Mapping[int, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Return the object of `--json`: shares from 0 to 1, null if a figure does not apply."""
        figures = self.figures
        return {
            "policy": self.policy,
            "jobs": self.jobs,
            "avg_jct_s": figures.mean("jct_s"),
            "avg_queue_s": figures.mean("queue_s"),
            "avg_slowdown": figures.mean("slowdown"),
            "p99_slowdown": figures.percentile("slowdown", 99),
            **figures.published(),
            **figures.deadlines.published(),
            "revenue_fairness": figures.revenue_fairness,
            "rounds": self.rounds,
            "cpu_s": round(self.cpu_s, 3),
            "sha256": self.sha256,
        }


def jobs_csv(result: Result, tenants: Mapping[int, str]) -> str:
    """Return one line per finished job, in order of submission."""
    lines = []
    for row in result.figures.jobs:
        job = row.job
        lines.append(
            [
                *(job.name or job.id, tenants[job.tenant], job.gpus),
                *(_number(job.submitted_us / SECOND_US), _number(row.start_s)),
                *(_number(row.end_s), _number(row.queue_s)),
                "" if row.rho is None else f"{row.rho:.6f}",
            ]
        )
    return write_csv(COLUMNS, lines)


def hours_csv(result: Result, tenants: Mapping[int, str]) -> str:
    """Return a line per tenant and hour with deserved or received GPU-time, in GPU-seconds."""
    lines = []
    for row in result.figures.tenant_hours:
        sums = (_number(gpu_us / SECOND_US) for gpu_us in (row.deserved, row.received, row.short))
        lines.append([tenants[row.tenant], row.period, *sums])
    return write_csv(HOUR_COLUMNS, lines)


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def page(title: str, results: Sequence[Result], *, says: str = "") -> str:
    """Return a self-contained page with tables and the papers' figures. `says`: its subtitle."""
    drawn = [result for result in results if result.figures.jobs]
    figures = "".join(figure(chart) for chart in _charts(drawn))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(says)}</p>{_table(results)}{_lenders(results)}"
        f'<h2>Figures</h2><ul class="key">{key([one.policy for one in drawn])}</ul>'
        f'<div class="charts">{figures}</div></body></html>\n'
    )


def _charts(drawn: Sequence[Result]) -> list[Chart]:
    uses = [_hours(one, "use") if one.figures.utilisation is not None else [] for one in drawn]
    return [
        Chart(
            "Fairness of jobs", f"Share of jobs up to each rho; below {LOSS_BELOW} is a loss.",
            f"rho, {RHO_MOST:g} and above as {RHO_MOST:g}", _cdfs(drawn, "rho", RHO_MOST),
            mark=LOSS_BELOW,
        ),
        Chart(
            "Slowdown", "Share of jobs up to each ratio of time in the pool to work.",
            "slowdown", _cdfs(drawn, "slowdown"), is_log=True,
        ),
        Chart(
            "Completion time", "Share of ended jobs, by time from submission to end.",
            "seconds", _cdfs(drawn, "jct_s"), is_log=True,
        ),
        Chart(
            "Fairness of tenants over time",
            f"The lowest share of deserved GPU-time of a tenant; {UNFAIR_BELOW} is enough.",
            "hour", [_hours(one, "least_rho") for one in drawn], is_ratio=True, mark=UNFAIR_BELOW,
        ),
        Chart(
            "Deficit over time",
            "Share of the GPU-time that all tenants deserved in the hour and did not get.",
            "hour", [_hours(one, "deficit") for one in drawn],
        ),
        Chart("Utilisation over time", "Share of GPUs that do useful work.", "hour", uses),
        Chart(
            "Decision time", "Share of rounds up to it; without snapshots and their effects.",
            "milliseconds", [cdf(sorted(1000 * s for s in one.decide_s)) for one in drawn],
            is_log=True,
        ),
    ]  # fmt: skip # rows of what belongs together


_SHARE = "share"
# Figures of a run: name in `Result.row`, label, unit.
ROWS = (
    ("jobs", "ended jobs", "count"),
    ("avg_jct_s", "mean time from submission to end", "s"),
    ("avg_queue_s", "part of this time without GPUs", "s"),
    ("avg_slowdown", "mean slowdown", "ratio"),
    ("p99_slowdown", "99 % quantile of the slowdown", "ratio"),
    ("sharing_loss_jobs", f"jobs with rho below {LOSS_BELOW}", _SHARE),
    ("tenant_unfair_intervals", f"tenants' hours with rho below {UNFAIR_BELOW}", _SHARE),
    ("tenant_deficit", "deserved GPU-time not received, by tenant and hour", _SHARE),
    ("tenant_daily_deficit", "the same by tenant and day", _SHARE),
    ("late_vs_fair_reference", "jobs later than with their tenant's quota only", _SHARE),
    ("gpu_utilisation", "GPUs doing useful work", _SHARE),
    ("waste", "GPUs restarting, or idle while jobs that could use them wait", _SHARE),
    ("preemptions", "leases taken back", "count"),
    ("deadline_miss_rate", "deadlines missed, by reward lost", _SHARE),
    ("deadline_reward_rate", "reward of jobs with deadlines", _SHARE),
    ("strict_miss_rate", "strict deadlines missed", _SHARE),
    ("soft_miss_rate", "soft deadlines missed, by reward lost", _SHARE),
    ("best_effort_jct_s", "mean time from submission to end without a deadline", "s"),
    ("slo_suspensions", "suspensions per job with a deadline", "ratio"),
    ("revenue_fairness", "income that follows contributions", _SHARE),
    ("rounds", "rounds", "count"),
    ("cpu_s", "CPU time of the run", "s"),
)


def _table(results: Sequence[Result]) -> str:
    rows = [result.row() for result in results]
    head = "".join(f"<th>{escape(row['policy'])}</th>" for row in rows)
    body = "".join(
        f"<tr><td>{escape(label)}</td>"
        + "".join(f"<td>{format_cell(row[name], unit)}</td>" for row in rows)
        + "</tr>"
        for name, label, unit in ROWS
    )
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>{body}</table></div>'


def format_cell(value: float | None, unit: str) -> str:
    """Return a figure as text for a table; `unit` is a unit of `ROWS`."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash in a table's cell
    if unit == _SHARE:
        return f"{100 * value:.2f} %"
    if unit == "count":
        return f"{value:,}"
    formatted = f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"
    return f"{formatted} s" if unit == "s" else formatted


def _lenders(results: Sequence[Result]) -> str:
    rows = "".join(
        f"<tr><td>{escape(result.policy)}</td><td>{escape(row.gpu_type)}</td>"
        f"<td>{escape(result.tenants.get(row.tenant, 'operator'))}</td>"
        f"<td>{row.contributed_gpu_us / HOUR_US:,.1f}</td>"
        f"<td>{row.earned_micro / CREDIT_MICRO:,.2f}</td>"
        f"<td>{'–' if row.alpha is None else f'{float(row.alpha):.2f}'}</td></tr>"  # noqa: RUF001 - a dash
        for result in results
        for row in result.figures.lenders
    )
    if not rows:
        return ""
    head = "".join(
        f"<th>{name}</th>"
        for name in ("policy", "type", "tenant", "contributed, GPU-h", "earned, credits", "alpha")
    )
    return (
        "<details><summary>Lenders: idle quota while others borrowed (contributed), and income"
        " from it. Alpha is the share of all income over the share of all contributions</summary>"
        f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div></details>'
    )


def _cdfs(results: Sequence[Result], name: str, most: float = float("inf")) -> list[Line]:
    lines = []
    for result in results:
        values = [getattr(row, name) for row in result.figures.jobs]
        lines.append(cdf(sorted(min(value, most) for value in values if value is not None)))
    return lines


def _hours(result: Result, name: str) -> Line:
    """Return a field by hour, thinned to about `POINTS` points."""
    hours = result.figures.hours
    step = max(1, (max(hours, default=0) + 1) // POINTS)
    return [
        (float(hour), min(2.0, value))
        for hour, row in sorted(hours.items())
        if hour % step == 0 and (value := getattr(row, name)) is not None
    ]
