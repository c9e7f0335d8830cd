"""Runs of policies on days of Chronus' workloads with deadlines, and their figures."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from statistics import fmean
from typing import Any

from evenshare_core.simulation.books import JobRecord
from evenshare_core.simulation.figures import figures_of
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    SimJob,
    Workload,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import HOUR_US, MINUTE_US, SECOND_US
from evenshare_research.reproduce.philly import COLD_US, NODE_GPUS
from evenshare_research.reproduce.runs import DATA, KeptRun

TRACE = DATA / "chronus.csv.gz"
WORKLOADS = ("SLO", "MIX1", "MIX2")
# The data has a quarter of the jobs, which run on a quarter of the 96 nodes, in the first days of
# the week.
NODES, DAYS = 24, 3
DAY_US = 24 * HOUR_US
SLOT_US = 5 * MINUTE_US  # length of a round and of a lease
SPREAD_MILLI = 900
SEED = 1
# The paper's profiling runs. They are compared with profiling on reserved GPUs: 2 of 96 nodes.
PROFILED_GPUS, PROFILED_US = 2, 5 * MINUTE_US
STATIC_GPUS = 2 * NODES * NODE_GPUS // 96
# Approximate CPU seconds of a run by policy; 10 for others.
ABOUT_S = {"unisched": 150, "chronus": 20}


def deadline_run(
    workload: str,
    policy: str,
    *,
    options: dict[str, Any] | None = None,
    noise_percent: int = 0,
    seed: int = SEED,
    profiling: bool = False,
) -> KeptRun:
    """Return a run whose estimates are wrong by up to `noise_percent`, drawn with `seed`.

    With `profiling`, each job is submitted with a profiling run.
    """
    more = f", estimates wrong by up to {noise_percent} %, seed {seed}" if noise_percent else ""
    more += "".join(f", {name} {value}" for name, value in (options or {}).items())
    more += ", with profiling runs" if profiling else ""
    return KeptRun.of(
        f"{__name__}:run",
        f"{workload}: {policy}{more}",
        ABOUT_S.get(policy, 10),
        workload=workload,
        policy=policy,
        options=options or {},
        noise_percent=noise_percent,
        seed=seed,
        profiling=profiling,
    )


def chronus(workload: str) -> Workload:
    """Return the jobs of one of `WORKLOADS` submitted in the first `DAYS` of its week."""
    with TRACE.open("rb") as file:
        week = read_workload(trace_lines(file, chosen=workload)[1])
    until_us = (week.jobs[0].submitted_us // DAY_US + DAYS) * DAY_US
    jobs = tuple(job for job in week.jobs if job.submitted_us < until_us)
    return replace(week, jobs=jobs)


def run(
    *,
    workload: str,
    policy: str,
    options: dict[str, Any],
    noise_percent: int,
    seed: int = SEED,
    profiling: bool = False,
) -> dict[str, Any]:
    """Simulate, and return the figures in seconds and shares.

    With `profiling`, also return the longest wait of profiling runs, and what it would be on
    `STATIC_GPUS` reserved GPUs.
    """
    jobs = chronus(workload)
    if noise_percent:
        jobs = replace(jobs, jobs=noisy_estimates(jobs.jobs, seed, noise_percent / 100))
    size = workload_size(jobs)
    if profiling:
        jobs = with_profiling(jobs)
    scenario = Scenario.make(jobs, make_nodes({"gpu": NODES}, NODE_GPUS), {}, {}, NODE_GPUS)
    cluster = replace(scenario.cluster, spread_milli=SPREAD_MILLI)
    rules = Rules(policy, options, SLOT_US, SLOT_US, SEED, cold_us=COLD_US)
    start_us = jobs.jobs[0].submitted_us // SLOT_US * SLOT_US
    result = simulate(cluster, jobs.jobs, rules, start_us=start_us, timer=time.perf_counter)
    if result.stranded:
        raise RuntimeError(f"{policy}: {len(result.stranded)} jobs never end")
    figures = figures_of(cluster, jobs.jobs, result.books)
    profiled = profiling_figures(jobs.jobs, result.books.jobs) if profiling else {}
    jct_s = [
        row.end_s - row.job.submitted_us / SECOND_US
        for row in figures.jobs
        if not row.job.is_profiler
    ]
    return {
        **size,
        **profiled,
        "deadline_miss_rate": figures.deadline_miss_rate,
        **figures.deadlines.published(),
        "jct_s": fmean(jct_s) if jct_s else None,
        "preemptions": figures.preemptions,
        "rounds": result.rounds,
        "slowest_round_s": max(result.decide_s, default=0.0),
    }


def with_profiling(workload: Workload) -> Workload:
    """Return the workload with an additional profiling run for each job, submitted with the job."""
    first = max(job.id for job in workload.jobs) + 1
    runs = [
        SimJob(
            first + place, job.tenant, min(PROFILED_GPUS, job.gpus), job.submitted_us, PROFILED_US,
            estimate_us=PROFILED_US, cold_us=0, checkpoint_us=0, is_profiler=True,
        )
        for place, job in enumerate(workload.jobs)
    ]  # fmt: skip # a table
    ordered = sorted((*workload.jobs, *runs), key=lambda job: (job.submitted_us, job.id))
    return replace(workload, jobs=tuple(ordered))


def profiling_figures(jobs: Iterable[SimJob], over: Iterable[JobRecord]) -> dict[str, float]:
    """Return the waits of profiling runs in this run and on nodes reserved for them, in seconds."""
    runs = [job for job in jobs if job.is_profiler]
    starts = {row.job: row.start_us for row in over}
    waits = [(starts[job.id] or 0) - job.submitted_us for job in runs]
    return {
        "profiling_runs": len(runs),
        "profiling_wait_s": fmean(waits) / SECOND_US,
        "profiling_wait_max_s": max(waits) / SECOND_US,
        "static_profiling_wait_max_s": _static_wait_us(runs) / SECOND_US,
    }


def _static_wait_us(runs: Sequence[SimJob]) -> int:
    """Return the longest wait of profiling runs that share `STATIC_GPUS` in turn, two GPUs each."""
    free = [0] * (STATIC_GPUS // PROFILED_GPUS)
    heapify(free)
    longest = 0
    for run in sorted(runs, key=lambda job: (job.submitted_us, job.id)):
        start_us = max(run.submitted_us, free[0])
        longest = max(longest, start_us - run.submitted_us)
        heapreplace(free, start_us + run.duration_us)
    return longest


def workload_size(workload: Workload) -> dict[str, float]:
    """Return the number of jobs, GPU-hours, and the load of the nodes while jobs arrive."""
    gpu_hours = sum(job.gpus * job.duration_us for job in workload.jobs) / HOUR_US
    offered = NODES * NODE_GPUS * 24 * DAYS
    return {
        "jobs": len(workload.jobs),
        "gpu_hours": gpu_hours,
        "density": gpu_hours / offered,
    }
