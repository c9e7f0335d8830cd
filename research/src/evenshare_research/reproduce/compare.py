"""Comparison of policies on a trace: fairness, waiting, waste and CPU seconds.

By default, a round takes place every second. Longer rounds would make short jobs seem unfair.
Leases are 900 s and cold starts 30 s long. The first line is the lower bound: a cluster in which
every job starts at once. Estimates are the jobs' durations, wrong by up to the given fraction.
Without a trace, it uses the two days of Philly in the demo:

    python -m evenshare_research.reproduce.compare [TRACE] [--nodes 40,60,88] [--policies P,...]

From a long trace, it takes two weeks from each of some dates (`TUNING` and `VERDICT` name those of
Philly). The number of nodes is chosen so that the load is `LOAD`:

    python -m evenshare_research.reproduce.compare TRACE --origin 2017-09-04 --slices verdict
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from evenshare_core.simulation.scenario import Scenario, infinite
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    Workload,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import SECOND_US
from evenshare_research.reproduce.philly import (
    COLD_US,
    LEASE_US,
    NODE_GPUS,
    TUNING,
    VERDICT,
    figures_row,
    nodes_for,
    simulated_row,
    slice_of,
)
from evenshare_research.reproduce.runs import TWO_DAYS
from evenshare_research.reproduce.shown import COLUMNS
from evenshare_research.reproduce.slices import POLICIES

Policies = dict[str, tuple[str, dict[str, object]]]  # name in the table -> (policy, options)
NAMED: Policies = {name.replace("`", ""): (policy, options) for name, policy, options in POLICIES}


def compare(workload: Workload, nodes: int, round_us: int, policies: Policies) -> None:
    """Print the table for one cluster size."""
    scenario = Scenario.make(workload, make_nodes({"gpu": nodes}, NODE_GPUS), {}, {}, NODE_GPUS)
    print(f"\n{nodes} nodes x {NODE_GPUS} GPUs, a round every {round_us / SECOND_US:g} s")
    _print_row("", [*(column for column, _, _ in COLUMNS), "CPU s"])
    for name, (policy, options) in policies.items():
        began = time.process_time()
        if policy:
            rules = Rules(policy, options, round_us, LEASE_US, cold_us=COLD_US)
            row = simulated_row(scenario.cluster, workload.jobs, rules)
        else:
            row = figures_row(infinite(scenario, Rules(round_us=round_us)).figures, nodes)
        cpu_s = f"{time.process_time() - began:.1f}"
        _print_row(name, [*(show(row[field]) for _, field, show in COLUMNS), cpu_s])


def _print_row(name: str, cells: Sequence[str]) -> None:
    print(f"{name:<28}" + "".join(f"{cell:>17}" for cell in cells), flush=True)


def _with_errors(workload: Workload, error: float) -> Workload:
    if not error:
        return workload
    return replace(workload, jobs=noisy_estimates(workload.jobs, 1, error))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evenshare_research.reproduce.compare")
    parser.add_argument("trace", nargs="?", type=Path, default=TWO_DAYS)
    parser.add_argument("--nodes", default="60", help="sizes, comma-separated (%(default)s)")
    parser.add_argument("--round-s", type=float, default=1, help="(%(default)s)")
    parser.add_argument("--estimate-error", type=float, default=0.3, help="(%(default)s)")
    parser.add_argument("--slices", default="", help="tuning, verdict, or dates")
    parser.add_argument("--origin", type=date.fromisoformat, help="the day on which TRACE begins")
    parser.add_argument("--policies", default="", help="some of them, by name")
    options = parser.parse_args()
    if options.slices and options.origin is None:
        parser.error("--slices needs --origin: the day on which the trace begins")
    chosen = [name for name in options.policies.split(",") if name]
    policies = {name: row for name, row in NAMED.items() if not chosen or row[0] in ("", *chosen)}
    round_us = int(options.round_s * SECOND_US)
    with options.trace.open("rb") as file:
        lines = list(trace_lines(file)[1])
    named = {"tuning": TUNING, "verdict": VERDICT}
    for start in named.get(options.slices, [day for day in options.slices.split(",") if day]):
        workload = slice_of(lines, options.origin, date.fromisoformat(start))
        workload = _with_errors(workload, options.estimate_error)
        print(f"\n{options.trace.name}, two weeks from {start}: {len(workload.jobs):,} jobs")
        compare(workload, nodes_for(workload), round_us, policies)
    if not options.slices:
        workload = _with_errors(read_workload(lines), options.estimate_error)
        print(f"{options.trace.name}: {len(workload.jobs):,} jobs")
        for nodes in options.nodes.split(","):
            compare(workload, int(nodes), round_us, policies)


if __name__ == "__main__":
    main()
