"""Runs on three GPU types with 8 GPUs each, as in OEF's evaluation: shares of programs, and jobs.

| here | from the paper |
|---|---|
| 8 GPUs of each of three types, four per node, rounds of 5 minutes | 6.1.1 |
| jobs of a tenant take turns, the longest-starved first | 6.1.3 |
| throughput in GPUs of the slowest type | 6.1.4 |
| `gavel`: a tenant's time fractions sum to at most 1 | 2.4, expression (3): 0.91 + 0.09 |
| 20 tenants with jobs of one type each | 6.3.1 |
| 50 tenants with 20 jobs of one type each, three days | 6.3.2 |

Only two speeds of OEF's jobs on its GPUs are public. Here, a tenant's job type has the speeds of a
model that Gavel measured on K80, P100 and V100. Or its speeds are drawn between the two public
ones.
"""

import csv
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from msgspec.structs import replace as struct_replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.formulations.problems import ShareProblem, ShareRule
from evenshare_core.formulations.shares import solve_shares
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.gandiva_fair.trading import Trader, holdings_after, new_trades
from evenshare_core.simulation.simulator import SimulationResult, check_conservation
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import GPU_MICRO, HOUR_US, MINUTE_US, ONE_MILLI, SECOND_US
from evenshare_research.reproduce.philly import COLD_US, LOAD
from evenshare_research.reproduce.runs import TWO_DAYS, KeptRun

# ending of a rule's name if a tenant holds at most one GPU at a time
ONE_GPU = ", one GPU at a time"
TYPES = ("type 1", "type 2", "type 3")  # the slowest first
GPUS, NODE_GPUS = 8, 4  # GPUs of each type, GPUs of a node
ROUND_US = 5 * MINUTE_US
SPEEDS_FILE = TWO_DAYS.with_name("gavel_throughputs.csv")
# The paper's speedups of VGG and LSTM on the fastest type.
LEAST, MOST = 1.39, 2.15
ERROR_SEEDS = 20
# an upper bound on the number of quanta until trades end
TRADE_QUANTA = 200
MOST_ROUNDS = 12 * 24 * 30  # a month of rounds; a run with more is stuck
GANGS, GANG_WEIGHTS = (1, 2, 4), (70, 10, 10)  # gang sizes as in Philly, up to a node


def rows_of(source: str, tenants: int, seed: int) -> list[list[float]]:
    """Return speedups of one job type per tenant, from `gavel` or in the range of the `paper`."""
    rng = random.Random(f"{seed} {source}")  # noqa: S311 - a workload, not a secret
    if source == "gavel":
        with SPEEDS_FILE.open(encoding="utf-8") as file:
            models = [
                [float(row[name]) for name in ("k80", "p100", "v100")]
                for row in csv.DictReader(file)
            ]
        # Types are ordered by speed, so models that are slower on a newer type are excluded.
        rising = [row for row in models if row == sorted(row)]
        drawn = [rng.choice(rising) for _ in range(tenants)]
        return [[round(value / row[0], 3) for value in row] for row in drawn]
    rows = []
    for _ in range(tenants):
        fastest = rng.uniform(LEAST, MOST)
        rows.append([1.0, round(rng.uniform(1, fastest), 3), round(fastest, 3)])
    return rows


# ---- shares by program ----


def estimates_run(source: str, tenants: int, seeds: int) -> KeptRun:
    """Return a run of every rule's total throughput on speedups drawn with `seeds` seeds."""
    return KeptRun.of(
        f"{__name__}:estimates", f"shares of {tenants} tenants, speeds of {source}", 1,
        source=source, tenants=tenants, seeds=seeds,
    )  # fmt: skip # rows of what belongs together


def estimates(*, source: str, tenants: int, seeds: int) -> list[dict[str, float]]:
    """Return, by seed, the total throughput of each rule in GPUs of the slowest type."""
    totals = []
    for seed in range(1, seeds + 1):
        rows = rows_of(source, tenants, seed)
        speedups, capacity = np.array(rows), np.full(len(TYPES), float(GPUS))
        one_gpu = ShareProblem(speedups, capacity, caps=np.ones(tenants))
        problem = ShareProblem(speedups, capacity)
        by_rule = {rule.value: solve_shares(problem, rule).total for rule in ShareRule}
        by_rule |= {
            f"{rule.value}{ONE_GPU}": solve_shares(one_gpu, rule).total
            for rule in (ShareRule.GAVEL, ShareRule.COOPERATIVE)
        }
        totals.append(by_rule | {"gandiva_fair": trading_total(rows)})
    return totals


def trading_total(rows: Sequence[Sequence[float]]) -> float:
    """Return the total throughput after all trades that Gandiva_fair makes from an equal split."""
    part = GPUS * GPU_MICRO // len(rows)
    traders = [
        Trader(
            tenant,
            {name: round(speed * ONE_MILLI) for name, speed in zip(TYPES, row, strict=True)},
            dict.fromkeys(TYPES, part),
            GPUS * len(TYPES) * GPU_MICRO,
        )
        for tenant, row in enumerate(rows, start=1)
    ]
    trades: list[Any] = []
    for quantum in range(TRADE_QUANTA):
        more = new_trades(traders, trades, TYPES, quantum)
        if not more:
            break
        trades += more
    after = holdings_after(traders, trades)
    return sum(one.throughput(after[one.tenant]) for one in traders) / (GPU_MICRO * ONE_MILLI)


def errors_run(source: str, tenants: int, errors: Sequence[float]) -> KeptRun:
    """Return a run that compares throughput with the throughput that wrong profiles predict."""
    return KeptRun.of(
        f"{__name__}:profile_errors", f"profiles that are wrong, speeds of {source}", 1,
        source=source, tenants=tenants, errors=list(errors),
    )  # fmt: skip # rows of what belongs together


def profile_errors(
    *, source: str, tenants: int, errors: Sequence[float]
) -> dict[str, list[list[float]]]:
    """Return |actual / expected - 1| of the total throughput, by rule and error, for each seed.

    Each speedup except the slowest type's is wrong by up to the error, drawn uniformly.
    """
    deviations: dict[str, list[list[float]]] = {}
    capacity = np.full(len(TYPES), float(GPUS))
    for rule in (ShareRule.COOPERATIVE, ShareRule.NONCOOPERATIVE):
        by_error = []
        for error in errors:
            row = []
            for seed in range(1, ERROR_SEEDS + 1):
                true = np.array(rows_of(source, tenants, seed))
                noise = np.random.default_rng(seed).uniform(1 - error, 1 + error, true.shape)
                noise[:, 0] = 1
                solution = solve_shares(ShareProblem(true * noise, capacity), rule)
                row.append(abs(float((true * solution.shares).sum()) / solution.total - 1))
            by_error.append(row)
        deviations[rule.value] = by_error
    return deviations


# ---- jobs ----


def steady_run(
    policy: str, options: Mapping[str, Any], seed: int, name: str, gangs: Sequence[int]
) -> KeptRun:
    """Return a run of twenty tenants that always have jobs of the given gangs, for a day."""
    sizes = ", ".join(map(str, gangs))
    return KeptRun.of(
        f"{__name__}:steady", f"20 tenants for a day, gangs {sizes}, seed {seed}: {name}", 1,
        policy=policy, options=dict(options), seed=seed, source="gavel", tenants=20, hours=24,
        gangs=list(gangs),
    )  # fmt: skip # rows of what belongs together


def steady(
    *,
    policy: str,
    options: Mapping[str, Any],
    seed: int,
    source: str,
    tenants: int,
    hours: int,
    gangs: Sequence[int],
) -> dict[str, float]:
    """Return the throughput of all leases in GPUs of the slowest type, not counting cold starts."""
    jobs = [
        SimJob(0, tenant, gang, 0, 10**6 * HOUR_US, profile=tenant)
        for tenant in range(1, tenants + 1)
        for gang in gangs
    ]
    numbered = tuple(replace(job, id=index) for index, job in enumerate(jobs, start=1))
    cluster = _cluster(rows_of(source, tenants, seed))
    result = _simulate(cluster, numbered, policy, options, until_us=hours * HOUR_US)
    return {"throughput": _work(cluster, numbered, result) / (hours * HOUR_US)}


def days_run(policy: str, options: Mapping[str, Any], seed: int, name: str) -> KeptRun:
    """Return a run of fifty tenants with twenty jobs each, arriving within three days."""
    return KeptRun.of(
        f"{__name__}:days", f"50 tenants in three days, seed {seed}: {name}", 5,
        policy=policy, options=dict(options), seed=seed, source="gavel", tenants=50, each=20,
        hours=72,
    )  # fmt: skip # rows of what belongs together


def days(
    *,
    policy: str,
    options: Mapping[str, Any],
    seed: int,
    source: str,
    tenants: int,
    each: int,
    hours: int,
) -> dict[str, Any]:
    """Return the mean and quantiles of JCT over all jobs, in seconds."""
    rows = rows_of(source, tenants, seed)
    jobs = workload(rows, each, hours, seed)
    result = _simulate(_cluster(rows), jobs, policy, options)
    if result.stranded:
        raise RuntimeError(f"{policy}: {len(result.stranded)} jobs never end")
    submitted = {job.id: job.submitted_us for job in jobs}
    jcts = sorted((row.end_us - submitted[row.job]) / SECOND_US for row in result.books.jobs)
    spread = [jcts[(len(jcts) - 1) * step // 100] for step in range(101)]
    return {"jobs": len(jcts), "jct_s": fmean(jcts), "quantiles": spread}


def workload(
    rows: Sequence[Sequence[float]], each: int, hours: int, seed: int
) -> tuple[SimJob, ...]:
    """Return jobs of one type per tenant.

    All jobs of a tenant arrive at the same random time. Gangs are as in Philly, and durations are
    log-normal. If the types were split equally, all jobs would take `LOAD` times the GPU-hours of
    these hours.
    """
    rng = random.Random(f"{seed} jobs")  # noqa: S311 - a workload, not a secret
    drawn = []
    for tenant in range(1, len(rows) + 1):
        at_us = rng.randrange(hours * 3600) * SECOND_US
        drawn += [
            (at_us, tenant, rng.choices(GANGS, GANG_WEIGHTS)[0], rng.lognormvariate(0, 1))
            for _ in range(each)
        ]
    drawn.sort()
    asked = sum(gang * length / fmean(rows[tenant - 1]) for _, tenant, gang, length in drawn)
    unit_us = LOAD * GPUS * len(TYPES) * hours * HOUR_US / asked
    return tuple(
        SimJob(index, tenant, gang, at_us, max(SECOND_US, int(length * unit_us)), profile=tenant)
        for index, (at_us, tenant, gang, length) in enumerate(drawn, start=1)
    )


def _cluster(rows: Sequence[Sequence[float]]) -> Cluster:
    nodes = [name for name in TYPES for _ in range(GPUS // NODE_GPUS)]
    profiles = {
        tenant: Profile(
            tenant,
            tenant,
            tuple((name, round(x * ONE_MILLI)) for name, x in zip(TYPES, row, strict=True)),
        )
        for tenant, row in enumerate(rows, start=1)
    }
    return Cluster(
        tuple(Node(index, name, NODE_GPUS) for index, name in enumerate(nodes, start=1)),
        (),
        profiles=profiles,
    )


def _simulate(
    cluster: Cluster,
    jobs: tuple[SimJob, ...],
    policy: str,
    options: Mapping[str, Any],
    *,
    until_us: int | None = None,
) -> SimulationResult:
    # The quota is one GPU of each type per tenant, even if the pool has fewer GPUs. Shares are
    # equal, and far below a whole GPU.
    quotas = tuple(
        Entitlement(profile.tenant, name, 1)
        for profile in cluster.profiles.values()
        for name in TYPES
    )
    rules = Rules(policy, options, ROUND_US, ROUND_US, cold_us=COLD_US)
    state = SimulationState(cluster, jobs, rules)
    rounds = 0
    while rounds <= MOST_ROUNDS and (state.runs or not state.events.is_over or not rounds):
        at_us = rounds * ROUND_US
        if until_us is not None and at_us >= until_us:
            break
        state.advance(at_us)
        decision = decide_round(struct_replace(state.snapshot(), entitlements=quotas))
        state.apply(decision)
        rounds += 1
    result = SimulationResult(
        state.books, rounds, rounds * ROUND_US, tuple(state.runs), tuple(state.leases.values())
    )
    if until_us is None:
        check_conservation(result, cluster, jobs)
    return result


def _work(cluster: Cluster, jobs: Sequence[SimJob], result: SimulationResult) -> float:
    """Return the work in GPU-microseconds on the slowest type."""
    by_id = {job.id: job for job in jobs}
    held = [
        (row.job, row.gpu_type, row.end_us - row.start_us - row.overhead_us)
        for row in result.books.leases
    ] + [(row.job, row.gpu_type, result.end_us - row.started_us) for row in result.open]
    return sum(
        by_id[job].gpus * lasted_us * cluster.speed_milli(by_id[job].profile, name) / ONE_MILLI
        for job, name, lasted_us in held
    )
