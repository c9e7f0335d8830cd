"""Runs policies on days of Philly, by default two weeks, and returns the figures."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any

from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.scenario import Scenario, infinite
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import Read, TraceLine
from evenshare_core.simulation.workloads import (
    Cluster,
    SimJob,
    Workload,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import HOUR_US, SECOND_US
from evenshare_research.reproduce.resamples import resampled
from evenshare_research.reproduce.runs import DATA, KeptRun

NODE_GPUS = 8
LEASE_US, COLD_US = 900 * SECOND_US, 30 * SECOND_US

# Slices of two weeks of philly_82k that do not overlap, chosen before any run. Rules were tuned
# only on the first slices. The other slices give the verdict.
SLICE_DAYS, DAY_US = 14, 24 * HOUR_US
TUNING = ("2017-09-25", "2017-10-09")
VERDICT = ("2017-10-23", "2017-11-06", "2017-11-20", "2017-12-04")
# GPU-time of a slice's jobs divided by the GPU-time of its cluster in two weeks: the load of the
# slice of 2017-10-09 on 60 nodes.
LOAD = 1.135

TRACE = DATA / "philly.csv.gz"
ORIGIN = date(2017, 9, 4)
SEED, ERROR = 1, 0.3
FLOOR = ""  # name for a cluster without a limit of GPUs, in place of a policy's
# Approximate CPU seconds of two weeks, by policy.
ABOUT_S = {FLOOR: 10, "evenshare": 75, "ltgf": 60, "srtf": 30, "sjf": 20, "fifo": 20, "yarn_cs": 25}
SAID = {FLOOR: "endless cluster (floor)"}
# The number of points that a result keeps of a distribution over jobs.
QUANTILES = 101


def philly(
    start: str,
    policy: str,
    *,
    options: dict[str, Any] | None = None,
    nodes: int | None = None,
    lease_s: int = LEASE_US // SECOND_US,
    round_s: int = 1,
    cold_s: int = COLD_US // SECOND_US,
    days: int = SLICE_DAYS,
    about_s: int | None = None,
    name: str = "",
) -> KeptRun:
    """Return a run of some days from a date, by default on the nodes of `nodes_for`.

    With `round_s` 0, there is a round at every event.
    """
    where = f"{nodes} nodes" if nodes else "the load of 10-09"
    more = "" if lease_s == LEASE_US // SECOND_US else f", leases of {lease_s} s"
    return KeptRun.of(
        f"{__name__}:run",
        f"{start}, {where}{more}: {name or SAID.get(policy, policy)}",
        about_s or ABOUT_S.get(policy, 60),
        start=start,
        policy=policy,
        options=options or {},
        nodes=nodes,
        lease_s=lease_s,
        round_s=round_s,
        cold_s=cold_s,
        days=days,
    )


def run(
    *,
    start: str,
    policy: str,
    options: dict[str, Any],
    nodes: int | None,
    lease_s: int,
    round_s: int,
    cold_s: int,
    days: int,
) -> dict[str, Any]:
    """Simulate, and return the figures in seconds and shares."""
    workload = philly_slice(start, days)
    count = nodes or nodes_for(workload, days)
    scenario = Scenario.make(workload, make_nodes({"gpu": count}, NODE_GPUS), {}, {}, NODE_GPUS)
    round_us, lease_us, cold_us = (length_s * SECOND_US for length_s in (round_s, lease_s, cold_s))
    if not policy:
        return figures_row(infinite(scenario, Rules(round_us=round_us)).figures, count)
    rules = Rules(policy, options, round_us, lease_us, cold_us=cold_us)
    return simulated_row(scenario.cluster, workload.jobs, rules)


def philly_slice(start: str, days: int = SLICE_DAYS) -> Workload:
    """Return the jobs of some days. Their estimates are wrong by up to `ERROR`."""
    with TRACE.open("rb") as file:
        workload = slice_of(trace_lines(file)[1], ORIGIN, date.fromisoformat(start), days)
    return replace(workload, jobs=noisy_estimates(workload.jobs, SEED, ERROR))


def simulated_row(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules) -> dict[str, Any]:
    """Simulate until all jobs have ended, and return the figures."""
    result = simulate(cluster, jobs, rules)
    if result.stranded:
        raise RuntimeError(f"{rules.policy}: {len(result.stranded)} jobs never end")
    return figures_row(figures_of(cluster, jobs, result.books), len(cluster.nodes))


def slice_of(lines: Iterable[Read], origin: date, start: date, days: int = SLICE_DAYS) -> Workload:
    """Return the jobs of `days` days from `start`. Times in the trace are relative to `origin`."""
    from_us = (start - origin).days * DAY_US
    until_us = from_us + days * DAY_US
    return read_workload(
        replace(line, submit_us=line.submit_us - from_us)
        for line in lines
        if isinstance(line, TraceLine) and from_us <= line.submit_us < until_us
    )


def nodes_for(workload: Workload, days: int = SLICE_DAYS) -> int:
    """Return how many nodes give a slice the load `LOAD`, but enough for its largest job."""
    asked_us = sum(job.gpus * job.duration_us for job in workload.jobs)
    nodes = round(asked_us / (LOAD * NODE_GPUS * days * DAY_US))
    return max(nodes, -(-max(job.gpus for job in workload.jobs) // NODE_GPUS))


def figures_row(figures: Figures, nodes: int) -> dict[str, Any]:
    """Return the figures of a run as plain JSON, in seconds and shares."""
    rhos = sorted(row.rho for row in figures.jobs if row.rho is not None)
    slowdowns = sorted(row.slowdown for row in figures.jobs)
    by_gang: dict[int, list[float]] = {}
    for row in figures.jobs:
        by_gang.setdefault(row.job.gpus, []).append(row.queue_s)
    return {
        "nodes": nodes,
        "jobs": len(figures.jobs),
        **figures.published(),
        "slowdown": figures.mean("slowdown"),
        "slowdown_p99": figures.percentile("slowdown", 99),
        "jct_s": figures.mean("jct_s"),
        "rho_quantiles": _quantiles(rhos),
        "slowdown_quantiles": _quantiles(slowdowns),
        "queue_s_by_gang": {str(gang): sum(q) / len(q) for gang, q in sorted(by_gang.items())},
        "resampled": resampled(figures),
    }


def _quantiles(values: list[float]) -> list[float]:
    last = len(values) - 1
    return [values[last * step // (QUANTILES - 1)] for step in range(QUANTILES)] if values else []
