"""Benchmark of the simulator: CPU seconds of whole runs, and the ratio to deciding every round.

Without arguments, it runs LTGF and `evenshare`, the default, on the two days of Philly in the demo.
They run on 140 nodes, and on 60, where jobs always compete. The first hours are run again with a
snapshot and `decide_round` in every round; both runs must give the same sha256. FIFO and SJF run on
the tests' slice of Philly and its partitions. With arguments, it runs on the given trace and, for
FIFO and SJF, its partitions:

    python -m benchmarks.simulate [TRACE [PARTITIONS]] [--nodes N] [--days D]
"""

import argparse
import resource
import time
from pathlib import Path

from evenshare_core.cli.collector import rare_collections
from evenshare_core.simulation.scenario import Scenario, run_policy
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    Workload,
    make_nodes,
    read_partitions,
    read_workload,
)
from evenshare_core.units import HOUR_US, SECOND_US
from evenshare_research.reproduce.runs import TWO_DAYS

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
COMPARED_HOURS = 12
FOREVER_US = 10**16
POLICIES = ("ltgf", "evenshare")


def read(path: Path) -> Workload:
    with path.open("rb") as file:
        return read_workload(trace_lines(file)[1])


def report(name: str, jobs: int, cpu_s: float, result: SimulationResult, extra: str = "") -> None:
    rate = jobs / cpu_s if cpu_s else 0
    print(
        f"{name:<34} {jobs:>6} jobs {result.rounds:>9,} rounds {cpu_s:8.2f} s"
        f" {rate:9,.0f} jobs/s{extra}"
    )


def partitions(workload: Workload, path: Path) -> None:
    """Run FIFO and SJF with one partition per tenant and with leases that never expire."""
    with path.open() as file:
        scenario = Scenario.make(workload, (), {}, read_partitions(file), 8)
    for policy in ("fifo", "sjf"):
        began = time.process_time()
        result = run_policy(scenario, Rules(policy, lease_us=FOREVER_US))
        cpu_s = time.process_time() - began
        report(f"{policy}, partitions", len(workload.jobs), cpu_s, result)


def pool(workload: Workload, nodes: int, policy: str, *, days: int = 0) -> Scenario:
    """Run a policy in one pool; return its scenario."""
    scenario = Scenario.make(workload, make_nodes({"gpu": nodes}, 8), {}, {}, 8)
    cpu_s, result = timed(scenario, policy, until_us=days * 24 * HOUR_US or None)
    report(f"{policy}, {nodes} nodes", len(result.books.jobs), cpu_s, result)
    return scenario


def timed(
    scenario: Scenario, policy: str, *, until_us: int | None, fast_forward: bool = True
) -> tuple[float, SimulationResult]:
    """Return the CPU seconds and the result of a run with 10 s rounds and 900 s leases."""
    rules = Rules(policy, round_us=10 * SECOND_US, lease_us=900 * SECOND_US)
    began = time.process_time()
    with rare_collections():  # like the command `simulate`
        result = simulate(
            scenario.cluster,
            scenario.workload.jobs,
            rules,
            until_us=until_us,
            fast_forward=fast_forward,
        )
    return time.process_time() - began, result


def compare(scenario: Scenario, policy: str) -> None:
    """Compare the first hours, once fast-forwarded and once with a decision in every round."""
    until_us = COMPARED_HOURS * HOUR_US
    cpu_s, result = timed(scenario, policy, until_us=until_us)
    plain_s, plain = timed(scenario, policy, until_us=until_us, fast_forward=False)
    if plain.books.sha256() != result.books.sha256():
        raise SystemExit("fast-forwarding changed the result")
    extra = f"  asking every round {plain_s:.2f} s, {plain_s / cpu_s:.1f}x"
    report(f"  its first {COMPARED_HOURS} hours", len(result.books.jobs), cpu_s, result, extra)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("partitions", nargs="?", type=Path)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--days", type=int, default=0, help="number of days; 0: all")
    options = parser.parse_args()
    if options.trace:
        workload = read(options.trace)
        if options.partitions:
            partitions(workload, options.partitions)
        if options.nodes:
            for policy in POLICIES:
                pool(workload, options.nodes, policy, days=options.days)
    else:
        partitions(read(DATA / "philly_oracle_slice.csv.gz"), DATA / "philly_oracle_nodes.csv")
        workload = read(TWO_DAYS)
        for nodes in [options.nodes] if options.nodes else [140, 60]:
            for policy in POLICIES:
                compare(pool(workload, nodes, policy, days=options.days), policy)
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
