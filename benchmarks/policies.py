"""Policies beside each other on one trace: fairness, waiting, waste and CPU seconds.

Rounds every second by default, so that jobs of a minute are not unfair for the grid alone; leases
900 s, cold starts 30 s. The first line is the floor, in which every job starts at once. Estimates
are the jobs' durations, wrong by the share that is given. Without a trace, on the two days of
Philly that the demo brings:

    python -m benchmarks.policies [TRACE] [--nodes 40,60,88] [--round-s 1] [--policies P,...]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.simulate import TWO_DAYS
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.scenario import Scenario, infinite
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    Workload,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import SECOND_US

NODE_GPUS = 8
LEASE_US, COLD_US = 900 * SECOND_US, 30 * SECOND_US


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
    f"{'policy':<20} {'loss %':>7} {'ten99 %':>8} {'deficit %':>9} {'slowdown':>8} {'p99':>7}"
    f" {'JCT s':>8} {'use %':>6} {'waste %':>7} {'late %':>7} {'CPU s':>6}"
)


def line(name: str, figures: Figures, cpu_s: float) -> str:
    """One row of the table."""
    slowdowns = sorted(row.slowdown for row in figures.jobs)
    p99 = slowdowns[int(len(slowdowns) * 0.99)] if slowdowns else None
    return (
        f"{name:<20} {_percent(figures.sharing_loss, 7)} {_percent(figures.unfair_intervals, 8)}"
        f" {_percent(figures.deficit, 9)} {_number(figures.mean('slowdown'), 8, 3)}"
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


def main() -> None:
    """Run on what was given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies")
    parser.add_argument("trace", nargs="?", type=Path, default=TWO_DAYS)
    parser.add_argument("--nodes", default="60", help="sizes, comma-separated (%(default)s)")
    parser.add_argument("--round-s", type=float, default=1, help="(%(default)s)")
    parser.add_argument("--estimate-error", type=float, default=0.3, help="(%(default)s)")
    parser.add_argument("--policies", default="", help="some of the names of the table")
    options = parser.parse_args()
    chosen = [name for name in options.policies.split(",") if name]
    variants = [one for one in VARIANTS if not chosen or one.name in chosen]
    with options.trace.open("rb") as file:
        workload = read_workload(trace_lines(file)[1])
    if options.estimate_error:
        noisy = noisy_estimates(workload.jobs, 1, options.estimate_error)
        workload = replace(workload, jobs=noisy)
    print(f"{options.trace.name}: {len(workload.jobs):,} jobs")
    for nodes in options.nodes.split(","):
        compare(workload, int(nodes), int(options.round_s * SECOND_US), variants)


if __name__ == "__main__":
    main()
