"""Runs of OEF's programs on small cases: its proofs, and its experiment with four tenants."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenshare_core.formulations.problems import ShareProblem, ShareSolution, virtual_tenants
from evenshare_core.formulations.shares import solve_shares
from evenshare_research.reproduce.runs import KeptRun

COOPERATIVE, NONCOOPERATIVE = "cooperative", "noncooperative"
Rows = Sequence[Sequence[float]]
# Four tenants on 8 GPUs of each of three types. The lowest and the highest speedup are the paper's
# (VGG and LSTM on its fastest type). The values between them are ours.
FOUR: Rows = ((1, 1.2, 1.39), (1, 1.3, 1.64), (1, 1.4, 1.9), (1, 1.5, 2.15))
POOL = (8.0, 8.0, 8.0)
LIES = (1.1, 1.2, 1.5)
CASES, TENANTS, RANDOM_POOL = 200, 5, (2.0, 2.0, 1.0, 1.0)
TOLERANCE = 1e-6


def four_run() -> KeptRun:
    return KeptRun.of(f"{__name__}:four_tenants", "four tenants", 2)


def four_tenants() -> dict[str, Any]:
    """Return throughputs in GPUs of the slowest type.

    `lies`: for each factor by which tenant 1 overstates its speed on faster types, its true
    throughput and the true total. `envy`: tenant 4's throughput divided by its throughput with
    tenant 1's shares.
    """
    # In section 6.2.1 the first tenant has the highest speedups.
    rows = FOUR[::-1]
    four = _solve(rows, POOL, NONCOOPERATIVE)
    lies = {}
    for factor in LIES:
        claimed = [[1.0, *(value * factor for value in rows[0][1:])], *rows[1:]]
        true = (np.array(rows) * _solve(claimed, POOL, NONCOOPERATIVE).shares).sum(axis=1)
        lies[str(factor)] = [float(true[0]), float(true.sum())]
    types = [[FOUR[0], (1, 1.45, 2.0)], *([row] for row in FOUR[1:])]
    speedups, weights, _ = virtual_tenants(types)
    two_types = solve_shares(
        ShareProblem(speedups, np.array(POOL), weights), NONCOOPERATIVE
    ).throughputs
    split = _solve(FOUR, POOL, "max_min").throughputs
    shared = _solve(FOUR, POOL, COOPERATIVE)
    seen = np.array(FOUR) @ shared.shares.T
    return {
        "four": four.throughputs.tolist(),
        "three": _solve(rows[:3], POOL, NONCOOPERATIVE).throughputs.tolist(),
        "lies": lies,
        "two_types": two_types.tolist(),
        "over_max_min": (shared.throughputs / split).tolist(),
        "envied": float((seen / seen.diagonal()[:, None]).max()),
        "envy": float(seen[3, 3] / seen[3, 0]),
    }


def proofs_run() -> KeptRun:
    """Return a run of sections 4.2.4, 4.4 and 5 on random cases and counterexamples."""
    return KeptRun.of(f"{__name__}:proofs", "what OEF proves", 20)


def proofs() -> dict[str, Any]:
    """Return how many of `CASES` random cases break a property, and the counterexamples."""
    broken = dict.fromkeys(("overstating", "envy", "split", "few", "few_cooperative"), 0)
    most = TENANTS + len(RANDOM_POOL) - 1
    for seed in range(CASES):
        rows = random_rows(seed)
        alone = _solve(rows, RANDOM_POOL, NONCOOPERATIVE)
        claimed = rows.copy()
        claimed[0, 1:] *= np.random.default_rng(CASES + seed).uniform(1, 2, len(RANDOM_POOL) - 1)
        lie = rows[0] @ _solve(claimed, RANDOM_POOL, NONCOOPERATIVE).shares[0]
        shared = _solve(rows, RANDOM_POOL, COOPERATIVE)
        split = rows @ np.array(RANDOM_POOL) / TENANTS
        seen = rows @ shared.shares.T
        broken["overstating"] += bool(lie > alone.throughputs[0] * (1 + TOLERANCE))
        broken["envy"] += bool((seen > seen.diagonal()[:, None] * (1 + TOLERANCE)).any())
        broken["split"] += bool((shared.throughputs < split * (1 - TOLERANCE)).any())
        broken["few"] += int((alone.shares > TOLERANCE).sum()) > most
        broken["few_cooperative"] += int((shared.shares > TOLERANCE).sum()) > most
    return {"broken": broken, **_counterexamples()}


def _counterexamples() -> dict[str, Any]:
    """Return the figures of the tables of docs/policies/oef.md."""
    two: Rows = ((1, 2), (1, 5))
    honest = _solve(two, (1, 1), NONCOOPERATIVE).throughputs[0]
    low = np.array(two[0]) @ _solve(((1, 1), two[1]), (1, 1), NONCOOPERATIVE).shares[0]
    types: Rows = ((1, 3), (1, 4), (1, 1))
    speedups, weights, _ = virtual_tenants([types, [(1, 5)]])
    claimed = speedups.copy()
    claimed[2] = (1, 3 - 1e-9)  # a report of exactly (1, 3) would tie with the first job type
    gains = [
        (np.array(types) * solve_shares(problem, NONCOOPERATIVE).shares[:3]).sum()
        for problem in (
            ShareProblem(rows, np.array((1.0, 5.0)), weights) for rows in (speedups, claimed)
        )
    ]
    pareto: Rows = ((1, 1, 1), (1, 4, 12), (1, 4, 16))
    better = np.array(((1, 0, 0), (0, 1, 1 / 3), (0, 0, 2 / 3)))
    distant = _solve(((1, 2, 5), (1, 4, 6)), (2, 1, 1), NONCOOPERATIVE).shares[0]
    return {
        "understating": [float(honest), float(low)],
        "several_types": [float(gain) for gain in gains],
        "cooperative": _solve(pareto, (1, 1, 1), COOPERATIVE).throughputs.tolist(),
        "better": (np.array(pareto) * better).sum(axis=1).tolist(),
        "distant": distant.tolist(),
    }


def random_rows(seed: int) -> Any:
    """Return speedups between 1 and about 10 for `TENANTS` tenants, the slowest type first."""
    steps = np.random.default_rng(seed).uniform(0, 3, (TENANTS, len(RANDOM_POOL) - 1))
    return np.hstack([np.ones((TENANTS, 1)), 1 + np.cumsum(steps, axis=1)])


def _solve(rows: Any, capacity: Sequence[float], rule: str) -> ShareSolution:
    problem = ShareProblem(np.array(rows, dtype=float), np.array(capacity, dtype=float))
    solution = solve_shares(problem, rule)
    if solution.status != "optimal":
        raise RuntimeError(f"{rule}: {solution.fallback}")
    return solution
