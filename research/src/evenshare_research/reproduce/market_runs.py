"""Runs Astraea-online and its baselines on the workload of `market_jobs`.

Astraea and BatchSche run in the library's slots. Gandiva_fair and HiveD are this repository's
policies in its simulator, on the same servers, quotas and arrivals. In the simulator, a job is a
fixed gang: the GPUs that its job of the trace requests, as in 5.1, or a number for comparison. Its
duration is that of equation (1) for its number of workers. Over several servers, data transfers
slow it down. These policies have no PSs and no prices, and reject no job. Cold starts cost nothing,
and the value of a late job is 0 instead of negative.

Leases of Gandiva_fair and HiveD last two days. With a quantum of one slot instead, Gandiva_fair
earned 1 % less with the largest gangs.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean, pvariance
from typing import Any

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.money.revenue_fairness import revenue_fairness
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import CREDIT_MICRO, HOUR_US, ONE_MILLI
from evenshare_research.formulations.market_ortools import solve_by_ortools
from evenshare_research.market.gains import fairness_of, revenues, true_utility_micro
from evenshare_research.market.model import MarketJob, MarketPool
from evenshare_research.market.prices import theta_milli_of
from evenshare_research.market.rounds import MarketRules, MarketRun, run_market
from evenshare_research.reproduce.market_jobs import LARGE, MarketWorkload, small_workload, workload
from evenshare_research.reproduce.runs import KeptRun

LAST_INTERVAL = 9  # the last interval, in which tau is 512 hours
# The paper's doubling intervals with one round each, and an operator's fixed batches. Lambda of
# Lemma 1 is 13 to 27 here with the least theta, and 65 to 395 by the paper's rule. With that many
# rounds, f would fall to 0 before the first job starts.
RULES = {
    "geometric": MarketRules("geometric", rounds=1, intervals=LAST_INTERVAL),
    "fixed": MarketRules("fixed", batch=24, horizon=256),
}
REQUESTED, LARGEST = 0, -1  # gangs; a positive number is the size of all gangs
LEASE_US, ROUND_US = 48 * HOUR_US, HOUR_US
TYPE = "gpu"
# Trades need several GPU types, and this pool has only one.
OPTIONS: dict[str, dict[str, Any]] = {"gandiva_fair": {"trading": False}, "hived": {}}
KINDS = ("linear", "convex")


def astraea_run(
    kind: str, jobs: int, servers: int, seed: int, *, interval: str, theta: str
) -> KeptRun:
    """Return a run of Astraea on a workload.

    `theta`: "paper" (the paper's rule), "least" (2) or "free" (1, with which all prices are 0).
    """
    return KeptRun.of(
        f"{__name__}:astraea",
        f"{jobs} jobs, {servers} servers, {kind}, seed {seed}: Astraea, {interval}, theta {theta}",
        2 if interval == "geometric" else 3,
        kind=kind, jobs=jobs, servers=servers, seed=seed, interval=interval, theta=theta,
    )  # fmt: skip # rows of what belongs together


def astraea(
    *, kind: str, jobs: int, servers: int, seed: int, interval: str, theta: str
) -> dict[str, Any]:
    """Run Astraea in the shared pool, and BatchSche for each tenant on its own servers."""
    made = workload(kind, jobs, servers, seed)
    pool = _priced(made, theta)
    began = time.process_time()
    run = run_market(pool, made.jobs, RULES[interval])
    cpu_s = time.process_time() - began
    rows = revenues(pool, made.jobs, run)
    private = [
        (tenant_jobs, run_market(alone, tenant_jobs, RULES[interval]))
        for alone, tenant_jobs in _partitions(made, pool)
    ]
    alone = {one[0].tenant: _revenue(one, alone_run) for one, alone_run in private}
    return {
        "revenue": _revenue(made.jobs, run),
        "scheduled": len(run.schedules),
        "borrowed": sum(schedule.borrowed for schedule in run.schedules),
        "makespan": max((schedule.end for schedule in run.schedules), default=0),
        "without_gain": sum(schedule.value_micro <= 0 for schedule in run.schedules),
        "cpu_s_per_job": cpu_s / jobs,
        "alpha": _plain(fairness_of(pool, rows).values()),
        "private_revenue": sum(alone.values()),
        "private_scheduled": sum(len(one.schedules) for _, one in private),
        "private_makespan": max(
            (schedule.end for _, one in private for schedule in one.schedules), default=0
        ),
        "private_alpha": _alphas(pool, alone),
    }


def baseline_run(policy: str, jobs: int, servers: int, seed: int, gang: int = REQUESTED) -> KeptRun:
    return KeptRun.of(
        f"{__name__}:baseline", f"{jobs} jobs, {servers} servers, seed {seed}: {policy}, {gang}",
        3 if policy == "hived" else 1,
        policy=policy, options=OPTIONS[policy], jobs=jobs, servers=servers, seed=seed, gang=gang,
    )  # fmt: skip # rows of what belongs together


def baseline(
    *, policy: str, options: Mapping[str, Any], jobs: int, servers: int, seed: int, gang: int
) -> dict[str, Any]:
    """Simulate, and return revenue, makespan and alpha for both kinds of utility.

    The schedule does not depend on utilities. `gang` is a number of GPUs, `REQUESTED` or `LARGEST`.
    The largest gang fills a server of 8 GPUs with one PS, and has as many workers on other servers
    as this PS supports (3i). Every gang is at most that, and at most the job's chunks.
    """
    both = {kind: workload(kind, jobs, servers, seed) for kind in KINDS}
    pool = both["linear"].pool
    most = LARGE + pool.ps_bandwidth // pool.worker_bandwidth
    sizes = both["linear"].requested if gang == REQUESTED else [gang if gang > 0 else most] * jobs
    gangs = tuple(
        gang_of(job, min(most, size)) for job, size in zip(both["linear"].jobs, sizes, strict=True)
    )
    result = simulate(_cluster(pool), gangs, Rules(policy, options, ROUND_US, LEASE_US))
    if result.stranded:
        raise RuntimeError(f"{policy}: {len(result.stranded)} jobs never end")
    ends = {row.job - 1: row.end_us / HOUR_US for row in result.books.jobs}
    return {kind: _judged(pool, made.jobs, ends) for kind, made in both.items()}


def ratio_run(kind: str, jobs: int, servers: int, seed: int) -> KeptRun:
    """Return a comparison of Astraea with the offline optimum, in a small case."""
    return KeptRun.of(
        f"{__name__}:ratio", f"{jobs} jobs, {servers} servers, {kind}, seed {seed}: the optimum",
        1 if jobs < 15 else 4,
        kind=kind, jobs=jobs, servers=servers, seed=seed,
    )  # fmt: skip # rows of what belongs together


SMALL_LAST = 64  # the number of slots that plans of small cases may use
SMALL_RULES = {
    "geometric": MarketRules("geometric", rounds=1, intervals=6),
    "fixed": MarketRules("fixed", batch=1, horizon=32),
}


def ratio(*, kind: str, jobs: int, servers: int, seed: int) -> dict[str, float]:
    """Return the ratios of revenue to the upper bound: Astraea's by interval, and the optimum's."""
    made = small_workload(kind, jobs, servers, seed)
    pool = _priced(made, "paper")
    optimum = solve_by_ortools(pool, made.jobs, SMALL_LAST, effort=1.0)
    bound = optimum.bound_micro / CREDIT_MICRO
    rows = {
        name: _revenue(made.jobs, run_market(pool, made.jobs, rules)) / bound
        for name, rules in SMALL_RULES.items()
    }
    return rows | {"known": optimum.value_micro / optimum.bound_micro}


def _priced(made: MarketWorkload, theta: str) -> MarketPool:
    if theta == "least":
        return made.pool
    if theta == "free":
        return replace(made.pool, worker_theta_milli=ONE_MILLI, ps_theta_milli=ONE_MILLI)
    workers, ps = theta_milli_of(made.jobs, longest=1 << LAST_INTERVAL)
    return replace(made.pool, worker_theta_milli=workers, ps_theta_milli=ps)


def _partitions(
    made: MarketWorkload, pool: MarketPool
) -> Iterable[tuple[MarketPool, list[MarketJob]]]:
    for owner in pool.owners:
        rows = zip(pool.servers, made.owners, strict=True)
        servers = [server for server, tenant in rows if tenant == owner.tenant]
        mine = [job for job in made.jobs if job.tenant == owner.tenant]
        if mine:
            yield replace(pool, servers=servers, owners=[owner]), mine


def _revenue(jobs: Sequence[MarketJob], run: MarketRun) -> float:
    """Return the sum of f(completion - arrival) in credits. Late jobs count as 0."""
    known = {job.id: job for job in jobs}
    total = sum(
        max(0, true_utility_micro(known[schedule.job], schedule)) for schedule in run.schedules
    )
    return total / CREDIT_MICRO


def gang_of(job: MarketJob, most: int) -> SimJob:
    """Return the job as a gang. Ids of the simulator start at 1.

    A gang larger than a server always spans servers, so its duration includes the transfers.
    """
    gpus = min(most, job.chunks)
    apart = job.work(centralised=False)
    alone = job.work(centralised=True) if gpus <= LARGE else apart
    return SimJob(
        job.id + 1, job.tenant, gpus, round(job.arrival * HOUR_US),
        max(1, round(alone / gpus * HOUR_US)), cold_us=0, checkpoint_us=0,
        spread=(("", max(1, int(alone / apart * ONE_MILLI))),),
    )  # fmt: skip # rows of what belongs together


def _cluster(pool: MarketPool) -> Cluster:
    nodes = tuple(
        Node(index, TYPE, server.workers) for index, server in enumerate(pool.servers, start=1)
    )
    quotas = tuple(Entitlement(row.tenant, TYPE, row.workers) for row in pool.owners)
    return Cluster(nodes, quotas)


def _judged(
    pool: MarketPool, jobs: Sequence[MarketJob], ends: Mapping[int, float]
) -> dict[str, Any]:
    gains = dict.fromkeys((row.tenant for row in pool.owners), 0.0)
    for job in jobs:
        gains[job.tenant] += max(0, job.utility_micro(ends[job.id] - job.arrival)) / CREDIT_MICRO
    times = {job.id: ends[job.id] - job.arrival for job in jobs}
    return {
        "revenue": sum(gains.values()),
        "hours": fmean(times.values()),
        "without_floor": sum(job.utility_micro(times[job.id]) for job in jobs) / CREDIT_MICRO,
        "makespan": max(ends.values()),
        "alpha": _alphas(pool, gains),
    }


def _alphas(pool: MarketPool, gains: Mapping[int, float]) -> list[float]:
    """Return the alpha of tenants without payments. A tenant's gain is the utility of its jobs."""
    quotas = {row.tenant: (row.workers, row.ps) for row in pool.owners}
    return _plain(revenue_fairness(gains, quotas).values())


def _plain(alphas: Iterable[Fraction | None]) -> list[float]:
    return [float(alpha) for alpha in alphas if alpha is not None]


def spread_of(alphas: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the variance over tenants."""
    return fmean(alphas), pvariance(alphas)
