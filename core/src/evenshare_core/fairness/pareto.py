"""The distance of an allocation from Pareto efficiency, by a separate linear program.

The program is not in `evenshare_core.formulations`, because a measurement must not depend on the
programs whose results it measures (ADR 0200).
"""

import highspy
import numpy as np

from evenshare_core.fairness.properties import Array, ShapeError, throughputs
from evenshare_core.fairness.solver import SilentHighs

# The limit of simplex iterations; a program of 100 rows and 5 types takes a few hundred. With a
# limit of wall time, a replay on a slower machine would give other results.
ITERATIONS = 100_000
OPTIONS = (("simplex_iteration_limit", ITERATIONS), ("threads", 1), ("random_seed", 0))


class UnsolvedError(RuntimeError):
    """The program has no proven optimum; the message is the solver's status."""


def pareto_slack(
    speedups: Array, shares: Array, capacity: Array, limits: Array | None = None
) -> float:
    """Return by how much total throughput could rise with no row worse off; 0 is efficient.

        max sum_l w_l . (y_l - x_l)
        w_l . y_l >= w_l . x_l      for every row l       no row is worse
        sum_l y_lj <= m_j           for every type j      capacity
        sum_j y_lj <= limit_l       if limits are given: the GPUs that a row can use
        y >= 0

    Raises:
        ShapeError: shapes differ.
        UnsolvedError: no optimum was proven.
    """
    w, x, m = np.asarray(speedups, float), np.asarray(shares, float), np.asarray(capacity, float)
    if w.ndim != 2 or w.shape != x.shape or m.shape != (w.shape[1],):
        raise ShapeError(f"speedups {w.shape}, shares {x.shape}, capacity {m.shape} do not fit")
    if not w.size:
        return 0.0
    now = throughputs(w, x)
    # Shares above capacity would make the program infeasible, so capacity is raised to the shares.
    model = _program(w, now, np.maximum(m, x.sum(axis=0)), limits)
    solver = SilentHighs()
    for name, value in OPTIONS:
        solver.setOptionValue(name, value)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise UnsolvedError(solver.modelStatusToString(status))
    best = -float(solver.getInfo().objective_function_value)
    return max(0.0, best - float(now.sum()))


def _program(w: Array, now: Array, capacity: Array, limits: Array | None) -> highspy.HighsLp:
    """Build the program; y_lj is its column l k + j."""
    n, k = w.shape
    inf = highspy.kHighsInf
    lower, upper = [now, np.full(k, -inf)], [np.full(n, inf), capacity]
    rows = [np.repeat(np.arange(n), k), n + np.tile(np.arange(k), n)]
    values = [w.ravel(), np.ones(n * k)]
    if limits is not None:
        lower.append(np.full(n, -inf))
        upper.append(np.asarray(limits, float))
        rows.append(n + k + np.repeat(np.arange(n), k))
        values.append(np.ones(n * k))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = n * k, sum(part.size for part in lower)
    model.col_cost_ = -w.ravel()
    model.col_lower_, model.col_upper_ = np.zeros(n * k), np.full(n * k, inf)
    model.row_lower_, model.row_upper_ = np.concatenate(lower), np.concatenate(upper)
    model.a_matrix_.start_ = np.arange(0, len(rows) * n * k + 1, len(rows), dtype=np.int32)
    model.a_matrix_.index_ = np.stack(rows, axis=1).ravel().astype(np.int32)
    model.a_matrix_.value_ = np.stack(values, axis=1).ravel()
    return model
