"""Runs of policies on days of Chronus' workloads with deadlines, and their figures."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.policies import COLD_US, NODE_GPUS
from benchmarks.reproduce.runs import KeptRun
from evenshare_core.simulation.figures import figures_of
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    Workload,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import HOUR_US, MINUTE_US

TRACE = Path(__file__).resolve().parents[1] / "data" / "chronus.csv.gz"
WORKLOADS = ("SLO", "MIX1", "MIX2")
# A quarter of the jobs on a quarter of the 96 nodes; the first days of the week that is kept.
NODES, DAYS = 24, 3
DAY_US = 24 * HOUR_US
SLOT_US = 5 * MINUTE_US  # of a round, and of a lease
SPREAD_MILLI = 900
SEED = 1
# Seconds of CPU that a run takes, roughly, by policy; 10 of others.
ABOUT_S = {"unisched": 150, "chronus": 20}


def deadline_run(
    workload: str, policy: str, *, options: dict[str, Any] | None = None, noise_percent: int = 0
) -> KeptRun:
    """A run; estimates are true durations, wrong by up to `noise_percent`."""
    more = f", estimates wrong by up to {noise_percent} %" if noise_percent else ""
    more += "".join(f", {name} {value}" for name, value in (options or {}).items())
    return KeptRun.of(
        f"{__name__}:run",
        f"{workload}: {policy}{more}",
        ABOUT_S.get(policy, 10),
        workload=workload,
        policy=policy,
        options=options or {},
        noise_percent=noise_percent,
    )


def chronus(workload: str) -> Workload:
    """The jobs of one of `WORKLOADS` that are submitted in the first `DAYS` of its week."""
    with TRACE.open("rb") as file:
        week = read_workload(trace_lines(file, chosen=workload)[1])
    until_us = (week.jobs[0].submitted_us // DAY_US + DAYS) * DAY_US
    jobs = tuple(job for job in week.jobs if job.submitted_us < until_us)
    return replace(week, jobs=jobs)


def run(
    *, workload: str, policy: str, options: dict[str, Any], noise_percent: int
) -> dict[str, Any]:
    """Simulate, and return the figures; seconds, shares."""
    jobs = chronus(workload)
    if noise_percent:
        jobs = replace(jobs, jobs=noisy_estimates(jobs.jobs, SEED, noise_percent / 100))
    scenario = Scenario.make(jobs, make_nodes({"gpu": NODES}, NODE_GPUS), {}, {}, NODE_GPUS)
    cluster = replace(scenario.cluster, spread_milli=SPREAD_MILLI)
    rules = Rules(policy, options, SLOT_US, SLOT_US, SEED, cold_us=COLD_US)
    start_us = jobs.jobs[0].submitted_us // SLOT_US * SLOT_US
    result = simulate(cluster, jobs.jobs, rules, start_us=start_us, timer=time.perf_counter)
    if result.stranded:
        raise RuntimeError(f"{policy}: {len(result.stranded)} jobs never end")
    figures = figures_of(cluster, jobs.jobs, result.books)
    return {
        **workload_size(jobs),
        "deadline_miss_rate": figures.deadline_miss_rate,
        **figures.deadlines.published(),
        "jct_s": figures.mean("jct_s"),
        "preemptions": figures.preemptions,
        "rounds": result.rounds,
        "slowest_round_s": max(result.decide_s, default=0.0),
    }


def workload_size(workload: Workload) -> dict[str, float]:
    """Jobs, GPU-hours, and these over what the nodes have while jobs arrive."""
    gpu_hours = sum(job.gpus * job.duration_us for job in workload.jobs) / HOUR_US
    offered = NODES * NODE_GPUS * 24 * DAYS
    return {
        "jobs": len(workload.jobs),
        "gpu_hours": gpu_hours,
        "density": gpu_hours / offered,
    }
