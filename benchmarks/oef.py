"""Benchmark of shares of mixed GPU types: the solvers of rounds, and the same programs in cvxpy.

Both sides solve the same instance in the same run; cvxpy gets matrices instead of single rows, and
uses ECOS. Figures are CPU time of this process, for building, solving and checking. For (10), ECOS
runs with up to 100 tenants; `python -m benchmarks.oef --patient` also runs it with 300, which takes
minutes. General (9) is also solved by HiGHS called directly, as before version 6 of the policies.
With caps, (9) is many programs, one after the other, so only HiGHS is compared.
"""

import statistics
import sys
import time
from collections.abc import Callable

import cvxpy
import numpy as np

from evenshare_core.formulations.problems import ShareProblem, ShareRule, ShareSolution
from evenshare_core.formulations.shares import solve_shares

TYPES = 10
# (rule, kind of speedups, tenants, runs of our solver, whether ECOS runs, goal)
CASES = (
    (ShareRule.NONCOOPERATIVE, "ordered", 1000, 15, True, "50x"),
    (ShareRule.NONCOOPERATIVE, "ordered", 3000, 15, True, ""),
    (ShareRule.NONCOOPERATIVE, "general", 300, 15, True, ""),
    (ShareRule.NONCOOPERATIVE, "general", 1000, 15, True, "5x"),
    (ShareRule.NONCOOPERATIVE, "general", 3000, 15, True, "5x"),
    (ShareRule.NONCOOPERATIVE, "capped", 40, 5, False, ""),
    (ShareRule.COOPERATIVE, "ordered", 20, 9, True, ""),
    (ShareRule.COOPERATIVE, "ordered", 100, 9, True, "100x"),
    (ShareRule.COOPERATIVE, "general", 100, 9, True, "25x"),
    (ShareRule.COOPERATIVE, "ordered", 300, 3, False, ""),
    (ShareRule.COOPERATIVE, "general", 300, 3, "--patient" in sys.argv, "25x"),
    (ShareRule.COOPERATIVE, "ordered", 1000, 1, False, ""),
    (ShareRule.COOPERATIVE, "general", 1000, 1, False, "5 s"),
)


def instance(kind: str, tenants: int) -> ShareProblem:
    """Draw speedups over ten types; the number of GPUs equals the number of tenants.

    If `capped`, a third of the tenants can use 0.2 to 0.8 GPUs.
    """
    chance = np.random.default_rng(1)
    if kind == "ordered":
        # Ratios of neighbouring types rise from one tenant to the next.
        ratios = np.sort(chance.uniform(1, 1.6, (tenants, TYPES - 1)), axis=0)
        faster = np.cumprod(ratios, axis=1)
    else:
        faster = 1 + np.cumsum(chance.uniform(0, 1, (tenants, TYPES - 1)), axis=1)
    capacity = chance.integers(tenants // 2, 2 * tenants, TYPES).astype(float)
    few = np.where(np.arange(tenants) % 3, np.inf, chance.uniform(0.2, 0.8, tenants))
    return ShareProblem(
        np.hstack([np.ones((tenants, 1)), faster]),
        capacity * tenants / capacity.sum(),
        caps=few if kind == "capped" else None,
    )


def ecos(problem: ShareProblem, rule: ShareRule) -> float:
    """Solve the program with cvxpy and ECOS; return the total throughput."""
    speedups, tenants = problem.speedups, len(problem.speedups)
    shares = cvxpy.Variable(speedups.shape, nonneg=True)
    own = cvxpy.sum(cvxpy.multiply(speedups, shares), axis=1)
    rows = [cvxpy.sum(shares, axis=0) <= problem.capacity]
    if rule is ShareRule.NONCOOPERATIVE:
        level = cvxpy.Variable()
        rows.append(own == level)
        goal = level * tenants
    else:
        rows.append(cvxpy.reshape(own, (tenants, 1), order="C") >= speedups @ shares.T)
        goal = cvxpy.sum(own)
    program = cvxpy.Problem(cvxpy.Maximize(goal), rows)
    program.solve(solver=cvxpy.ECOS)
    if program.status != cvxpy.OPTIMAL:
        raise SystemExit(f"ECOS ended with {program.status}")
    return float(program.value)


def cpu_s(call: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def by_highs(problem: ShareProblem, rule: ShareRule, total: float, ours: float) -> str:
    """Solve with HiGHS called directly; return its time, and the ratio to ours."""
    direct: list[ShareSolution] = []
    theirs = cpu_s(lambda: direct.append(solve_shares(problem, rule, former=True)), 1)
    if direct[0].fallback or abs(direct[0].total / total - 1) > 1e-6:
        raise SystemExit(f"direct HiGHS differs: {direct[0].total} and {total}")
    return f"  direct HiGHS {theirs * 1000:9.1f} ms  {theirs / ours:6.1f}x"


def main() -> None:
    print(f"{TYPES} GPU types, CPU time; totals of both agree to 1e-5")
    # The first calls load HiGHS and OR-Tools, so they are not measured.
    for rule in (ShareRule.COOPERATIVE, ShareRule.NONCOOPERATIVE):
        solve_shares(instance("general", 20), rule)
    for rule, kind, tenants, runs, asked, goal in CASES:
        problem = instance(kind, tenants)
        solutions: list[ShareSolution] = []
        ours = cpu_s(lambda p=problem, r=rule, f=solutions: f.append(solve_shares(p, r)), runs)
        if solutions[0].fallback or solutions[0].status != "optimal":
            raise SystemExit(f"not solved as requested: {solutions[0].fallback}")
        line = f"{rule:<15}{kind:<9}{tenants:>5} tenants  ours {ours * 1000:9.1f} ms"
        if asked:
            totals: list[float] = []
            theirs = cpu_s(lambda p=problem, r=rule, t=totals: t.append(ecos(p, r)), 1)
            if abs(totals[0] / solutions[0].total - 1) > 1e-5:
                raise SystemExit(f"totals differ: {totals[0]} and {solutions[0].total}")
            line += f"  cvxpy + ECOS {theirs * 1000:9.1f} ms  {theirs / ours:6.0f}x"
        if rule is ShareRule.NONCOOPERATIVE and kind != "ordered":
            line += by_highs(problem, rule, solutions[0].total, ours)
        print(line + (f"  (goal {goal})" if goal else ""), flush=True)


if __name__ == "__main__":
    main()
