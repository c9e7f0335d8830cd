"""Runs policies on single days of Chronus' workloads with deadlines, and returns the figures.

Each seed draws a workload as UniSched's IV-B does. The jobs, their times and their classes are
those of Chronus' files, whose own deadlines are far later (1.1 to 4.95 times the duration).

| IV-B | here |
|---|---|
| a deadline of 1.1 to 2 times the duration | `FIRST_DEADLINE`, uniform |
| soft deadlines at 1.1, 1.2, 1.5 times the first, worth 80, 50, 20 | `SOFT_STEPS` |
| 20 % of the jobs stop by a metric | `METRIC_SHARE`; names that would tell which are not public |
| the best metric, or 99 % of it, as target | equally likely |
| iterations saved: up to 22 %, or 31 % (II-A, figure 1) | `SAVED`, uniform |
| the iteration estimator is wrong by 10 % half-way (VI-A) | uniform up to `FIT_ERROR`, mean 10 % |

A job that stops by a metric runs for the trace's duration, as in IV-B. Its user states the larger
maximal number of iterations. A policy with `knows` "fit" has the iteration estimator; with
"maximum" it plans with the maximum.
"""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from math import isqrt
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
from evenshare_core.units import HOUR_US, MINUTE_US, ONE_MILLI, SECOND_US
from evenshare_research.reproduce.philly import COLD_US, NODE_GPUS
from evenshare_research.reproduce.runs import DATA, KeptRun

TRACE = DATA / "chronus.csv.gz"
WORKLOADS = ("SLO", "MIX1", "MIX2")
# The data has a quarter of the jobs. A seed draws one of every `STRATUM` jobs of similar GPU-time.
# Jobs longer than a day are left out. They are one in twenty, but have four fifths of the GPU-time.
# Such a job would fill a small cluster for weeks. `NODES` give the others a density of about 1.
# Gangs that these nodes cannot hold are left out too.
DAYS, STRATUM, NODES = 1, 2, 4
FIRST_DEADLINE = (1.1, 2.0)
SOFT_STEPS = ((1.0, 100), (1.1, 80), (1.2, 50), (1.5, 20))
METRIC_SHARE, SAVED, FIT_ERROR = 0.2, (0.22, 0.31), 0.2
FIT_ERROR_MILLI = isqrt(round(FIT_ERROR * ONE_MILLI) ** 2 // 3)  # the standard error
FIT, MAXIMUM = "fit", "maximum"
DAY_US = LONGEST_US = 24 * HOUR_US
SLOT_US = 5 * MINUTE_US  # length of a round and of a lease
SPREAD_MILLI = 900
SEED = 1
# The paper's profiling runs. They are compared with profiling on reserved GPUs: 2 of 96 nodes,
# but enough for one run.
PROFILED_GPUS, PROFILED_US = 2, 5 * MINUTE_US
STATIC_GPUS = max(PROFILED_GPUS, 2 * NODES * NODE_GPUS // 96)
# Approximate CPU seconds of a run by policy; 1 for others.
ABOUT_S = {"unisched": 10, "chronus": 4, "three_sigma": 2}


def deadline_run(
    workload: str,
    policy: str,
    *,
    seed: int,
    knows: str = MAXIMUM,
    options: dict[str, Any] | None = None,
    noise_percent: int = 0,
    profiling: bool = False,
) -> KeptRun:
    """Return a run on the workload of a seed, with estimates wrong by up to `noise_percent`.

    With `profiling`, each job is submitted with a profiling run.
    """
    more = f", seed {seed}"
    more += f", estimates wrong by up to {noise_percent} %" if noise_percent else ""
    more += "".join(f", {name} {value}" for name, value in (options or {}).items())
    more += ", with profiling runs" if profiling else ""
    return KeptRun.of(
        f"{__name__}:run",
        f"{workload}: {policy}{more}",
        ABOUT_S.get(policy, 1),
        workload=workload,
        policy=policy,
        seed=seed,
        knows=knows,
        options=options or {},
        noise_percent=noise_percent,
        profiling=profiling,
    )


def chronus(workload: str, days: int = DAYS) -> Workload:
    """Return the jobs of one of `WORKLOADS` that were submitted in the first days of the week."""
    with TRACE.open("rb") as file:
        week = read_workload(trace_lines(file, chosen=workload)[1])
    until_us = (week.jobs[0].submitted_us // DAY_US + days) * DAY_US
    jobs = tuple(job for job in week.jobs if job.submitted_us < until_us)
    return replace(week, jobs=jobs)


def drawn(week: Workload, seed: int, knows: str) -> Workload:
    """Return a part of the jobs with deadlines and stopping criteria of a seed, as in IV-B.

    All draws of a job are made whatever `knows` is. So policies with different knowledge have the
    same jobs.
    """
    draw = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    fitting = [
        job for job in week.jobs if job.gpus <= NODES * NODE_GPUS and job.duration_us <= LONGEST_US
    ]
    by_size = sorted(fitting, key=lambda job: (job.gpus * job.duration_us, job.id))
    strata = [by_size[first : first + STRATUM] for first in range(0, len(by_size), STRATUM)]
    kept = {draw.choice(stratum).id for stratum in strata}
    jobs: list[SimJob] = []
    for job in fitting:
        factor = draw.uniform(*FIRST_DEADLINE)
        by_metric, saved = draw.random() < METRIC_SHARE, draw.uniform(0, draw.choice(SAVED))
        error = draw.uniform(-FIT_ERROR, FIT_ERROR)
        if job.id not in kept:
            continue
        made = replace(job, id=len(jobs) + 1, **_deadlines(job, factor))
        if by_metric:
            most_us = int(job.duration_us / (1 - saved))
            if knows == FIT:
                fit_us = min(most_us, int(job.duration_us * (1 + error)))
                made = replace(made, estimate_us=fit_us, estimate_error_milli=FIT_ERROR_MILLI)
            else:
                made = replace(made, estimate_us=most_us)
        jobs.append(made)
    return replace(week, jobs=tuple(jobs))


def _deadlines(job: SimJob, factor: float) -> dict[str, Any]:
    """Return the fields of the deadlines of a job's class; empty for best-effort jobs."""
    if job.deadline_us is None:
        return {}
    steps = SOFT_STEPS if len(job.values) > 1 else SOFT_STEPS[:1]
    values = tuple(
        (job.submitted_us + int(job.duration_us * factor * later), value) for later, value in steps
    )
    return {"deadline_us": values[0][0], "values": values}


def run(
    *,
    workload: str,
    policy: str,
    seed: int,
    knows: str,
    options: dict[str, Any],
    noise_percent: int,
    profiling: bool = False,
) -> dict[str, Any]:
    """Simulate, and return the figures in seconds and shares.

    With `profiling`, also return the longest wait of profiling runs, and what it would be on
    reserved GPUs.
    """
    jobs = drawn(chronus(workload), seed, knows)
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
    """Return the waits of profiling runs in this run and on GPUs reserved for them, in seconds."""
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
    """Return jobs, GPU-hours, the load while jobs arrive, and the miss rate that no policy avoids.

    The last is that of jobs that all start in the first round after their submission.
    """
    lost = [
        job.value_lost(-(-job.submitted_us // SLOT_US) * SLOT_US + job.duration_us)
        for job in workload.jobs
        if job.deadline_us is not None
    ]
    gpu_hours = sum(job.gpus * job.duration_us for job in workload.jobs) / HOUR_US
    return {
        "jobs": len(workload.jobs),
        "gpu_hours": gpu_hours,
        "density": gpu_hours / (NODES * NODE_GPUS * 24 * DAYS),
        "least_miss_rate": fmean(lost) if lost else 0.0,
    }
