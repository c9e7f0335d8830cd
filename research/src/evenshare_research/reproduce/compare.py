"""Policies beside each other on one trace: fairness, waiting, waste and CPU seconds.

Rounds every second by default, so that jobs of a minute are not unfair for the grid alone; leases
900 s, cold starts 30 s. The first line is the floor, in which every job starts at once. Estimates
are the jobs' durations, wrong by the share that is given. Without a trace, on the two days of
Philly that the demo brings:

    python -m evenshare_research.reproduce.compare [TRACE] [--nodes 40,60,88] [--policies P,...]

Of a long trace, two weeks from each of some dates (`TUNING` and `VERDICT` name those of Philly), on
as many nodes as give the load of `LOAD`:

    python -m evenshare_research.reproduce.compare TRACE --origin 2017-09-04 --slices verdict
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.scenario import Scenario, infinite
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import Read, TraceLine
from evenshare_core.simulation.workloads import (
    Workload,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import HOUR_US, SECOND_US
from evenshare_research.reproduce.runs import TWO_DAYS

NODE_GPUS = 8
LEASE_US, COLD_US = 900 * SECOND_US, 30 * SECOND_US

# Two weeks each of philly_82k, chosen before any policy ran on them: rules are chosen on the first
# ones alone, and the others are for the verdict. No two overlap.
SLICE_DAYS, DAY_US = 14, 24 * HOUR_US
TUNING = ("2017-09-25", "2017-10-09")
VERDICT = ("2017-10-23", "2017-11-06", "2017-11-20", "2017-12-04")
# GPU-time that the jobs of a slice ask for, over what its cluster has in two weeks: that of the
# slice of 2017-10-09 on 60 nodes.
LOAD = 1.135


@dataclass(frozen=True)
class Variant:
    """A policy with its options, by a name for the table."""

    name: str
    policy: str
    options: dict[str, Any]


VARIANTS = (
    Variant("evenshare", "evenshare", {}),
    Variant("evenshare estimates", "evenshare", {"estimates": "given"}),
    Variant("evenshare tight", "evenshare", {"preset": "tight", "estimates": "given"}),
    Variant("ltgf", "ltgf", {}),
    Variant("srtf", "srtf", {}),
    Variant("sjf", "sjf", {"backfill": True}),
    Variant("fifo", "fifo", {"backfill": True}),
    Variant("yarn_cs", "yarn_cs", {}),
)
HEAD = (
    f"{'policy':<20} {'loss %':>7} {'ten99 %':>8} {'deficit %':>9} {'daily %':>7} {'slowdown':>8}"
    f" {'p99':>7}"
    f" {'JCT s':>8} {'use %':>6} {'waste %':>7} {'late %':>7} {'CPU s':>6}"
)


def line(name: str, figures: Figures, cpu_s: float) -> str:
    """One row of the table."""
    slowdowns = sorted(row.slowdown for row in figures.jobs)
    p99 = slowdowns[int(len(slowdowns) * 0.99)] if slowdowns else None
    return (
        f"{name:<20} {_percent(figures.sharing_loss, 7)} {_percent(figures.unfair_intervals, 8)}"
        f" {_percent(figures.deficit, 9)} {_percent(figures.daily_deficit, 7)}"
        f" {_number(figures.mean('slowdown'), 8, 3)}"
        f" {_number(p99, 7, 2)} {_number(figures.mean('jct_s'), 8, 0)}"
        f" {_percent(figures.utilisation, 6, 1)} {_percent(figures.waste, 7)}"
        f" {_percent(figures.late, 7)} {cpu_s:6.1f}"
    )


def _percent(value: float | None, width: int, places: int = 2) -> str:
    return _number(None if value is None else 100 * value, width, places)


def _number(value: float | None, width: int, places: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width},.{places}f}"


def compare(workload: Workload, nodes: int, round_us: int, variants: list[Variant]) -> None:
    """Print the table of one cluster size."""
    scenario = Scenario.make(workload, make_nodes({"gpu": nodes}, NODE_GPUS), {}, {}, NODE_GPUS)
    print(f"\n{nodes} nodes x {NODE_GPUS} GPUs, a round every {round_us / SECOND_US:g} s")
    print(HEAD)
    floor = infinite(scenario, Rules(round_us=round_us))
    print(line("endless cluster", floor.figures, 0.0))
    for variant in variants:
        rules = Rules(variant.policy, variant.options, round_us, LEASE_US, cold_us=COLD_US)
        began = time.process_time()
        result = simulate(scenario.cluster, workload.jobs, rules)
        cpu_s = time.process_time() - began
        if result.stranded:
            raise SystemExit(f"{variant.name}: {len(result.stranded)} jobs never end")
        figures = figures_of(scenario.cluster, workload.jobs, result.books)
        print(line(variant.name, figures, cpu_s), flush=True)


def slice_of(lines: Iterable[Read], origin: date, start: date, days: int = SLICE_DAYS) -> Workload:
    """The jobs of two weeks, or so many days, of a trace that counts from `origin`."""
    from_us = (start - origin).days * DAY_US
    until_us = from_us + days * DAY_US
    return read_workload(
        replace(line, submit_us=line.submit_us - from_us)
        for line in lines
        if isinstance(line, TraceLine) and from_us <= line.submit_us < until_us
    )


def nodes_for(workload: Workload, days: int = SLICE_DAYS) -> int:
    """The nodes on which a slice has the load of `LOAD`, or that its largest job needs."""
    asked_us = sum(job.gpus * job.duration_us for job in workload.jobs)
    nodes = round(asked_us / (LOAD * NODE_GPUS * days * DAY_US))
    return max(nodes, -(-max(job.gpus for job in workload.jobs) // NODE_GPUS))


def _with_errors(workload: Workload, error: float) -> Workload:
    if not error:
        return workload
    return replace(workload, jobs=noisy_estimates(workload.jobs, 1, error))


def main() -> None:
    """Run on what was given."""
    parser = argparse.ArgumentParser(prog="python -m evenshare_research.reproduce.compare")
    parser.add_argument("trace", nargs="?", type=Path, default=TWO_DAYS)
    parser.add_argument("--nodes", default="60", help="sizes, comma-separated (%(default)s)")
    parser.add_argument("--round-s", type=float, default=1, help="(%(default)s)")
    parser.add_argument("--estimate-error", type=float, default=0.3, help="(%(default)s)")
    parser.add_argument("--slices", default="", help="tuning, verdict, or dates")
    parser.add_argument("--origin", type=date.fromisoformat, help="the day on which TRACE begins")
    parser.add_argument("--policies", default="", help="some of the names of the table")
    options = parser.parse_args()
    if options.slices and options.origin is None:
        parser.error("--slices needs --origin: the day on which the trace begins")
    chosen = [name for name in options.policies.split(",") if name]
    variants = [one for one in VARIANTS if not chosen or one.name in chosen]
    round_us = int(options.round_s * SECOND_US)
    with options.trace.open("rb") as file:
        lines = list(trace_lines(file)[1])
    named = {"tuning": TUNING, "verdict": VERDICT}
    for start in named.get(options.slices, [day for day in options.slices.split(",") if day]):
        workload = slice_of(lines, options.origin, date.fromisoformat(start))
        workload = _with_errors(workload, options.estimate_error)
        print(f"\n{options.trace.name}, two weeks from {start}: {len(workload.jobs):,} jobs")
        compare(workload, nodes_for(workload), round_us, variants)
    if not options.slices:
        workload = _with_errors(read_workload(lines), options.estimate_error)
        print(f"{options.trace.name}: {len(workload.jobs):,} jobs")
        for nodes in options.nodes.split(","):
            compare(workload, int(nodes), round_us, variants)


if __name__ == "__main__":
    main()
