"""The simulator: CPU seconds of whole runs, and against asking the policy at every round.

Without arguments, on the slice of Philly that the repository holds, and for LTGF on a drawn day
that keeps 24 nodes busy. With a trace and, for FIFO,
its partitions, on those:

    python -m benchmarks.simulate [TRACE [PARTITIONS]] [--nodes N] [--days D]

A run with shortcuts must give the same sha256 as one that builds a snapshot and calls
`decide_round` each time; where that would take minutes (a trace is given) only the first runs.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from scheduling.domain.values import SECOND_US
from scheduling.simulation.scenario import Scenario, run_policy
from scheduling.simulation.simulator import Outcome, simulate
from scheduling.simulation.trace_formats import trace_lines
from scheduling.simulation.workloads import (
    Workload,
    nodes_make,
    partitions_read,
    synthetic,
    workload_read,
)
from scheduling.simulation.world import Rules

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
FOREVER_US = 10**16
LTGF = Rules("ltgf", round_us=10 * SECOND_US, lease_us=900 * SECOND_US)


def read(path: Path) -> Workload:
    """Return a trace's jobs."""
    with path.open("rb") as file:
        return workload_read(trace_lines(file)[1])


def report(name: str, jobs: int, cpu_s: float, outcome: Outcome, extra: str = "") -> None:
    """Print one line."""
    rate = jobs / cpu_s if cpu_s else 0
    print(
        f"{name:<34} {jobs:>6} jobs {outcome.rounds:>9,} rounds {cpu_s:8.2f} s"
        f" {rate:9,.0f} jobs/s{extra}"
    )


def partitions(workload: Workload, path: Path) -> None:
    """FIFO and SJF with every tenant alone on its nodes, without leases that end."""
    with path.open() as file:
        scenario = Scenario.make(workload, (), {}, partitions_read(file), 8)
    for policy in ("fifo", "sjf"):
        began = time.process_time()
        outcome = run_policy(scenario, Rules(policy, lease_us=FOREVER_US))
        cpu_s = time.process_time() - began
        report(f"{policy}, partitions", len(workload.jobs), cpu_s, outcome)


def pool(workload: Workload, nodes: int, *, days: int, compare: bool) -> None:
    """LTGF in one pool, 10 s rounds, 900 s leases."""
    scenario = Scenario.make(workload, nodes_make({"gpu": nodes}, 8), {}, {}, 8)
    until_us = days * 86_400 * SECOND_US if days else None
    taken = []
    for shortcuts in (True, False)[: 1 + compare]:
        began = time.process_time()
        outcome = simulate(
            scenario.cluster, workload.jobs, LTGF, until_us=until_us, shortcuts=shortcuts
        )
        taken.append((time.process_time() - began, outcome))
    cpu_s, outcome = taken[0]
    extra = ""
    if compare:
        if taken[1][1].books.sha256() != outcome.books.sha256():
            raise SystemExit("the shortcuts changed the result")
        extra = f"  asking every round {taken[1][0]:.2f} s, {taken[1][0] / cpu_s:.1f}x"
    report(f"ltgf, {nodes} nodes", len(outcome.books.jobs), cpu_s, outcome, extra)


def main() -> None:
    """Run on what was given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("partitions", nargs="?", type=Path)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--days", type=int, default=0, help="only so many; 0: all")
    options = parser.parse_args()
    workload = read(options.trace or DATA / "philly_oracle_slice.csv.gz")
    alone = options.partitions if options.trace else DATA / "philly_oracle_nodes.csv"
    if alone:
        partitions(workload, alone)
    if not options.trace:
        drawn = synthetic(seed=1, jobs=700, tenants=8, hours=30)
        pool(drawn, options.nodes or 24, days=options.days, compare=True)
    elif options.nodes:
        pool(workload, options.nodes, days=options.days, compare=False)
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
