"""Ties between optimal shares: the optimum with lexicographically min-max throughputs is used.

The largest throughput per unit of weight is lowered as far as the optimum allows, then the largest
of the others, and so on. So no tenant is far ahead without need, at the same total. For example,
the speedups (1,1,1), (1,4,12), (1,4,16) on one GPU of each type give throughputs of 1, 8, 10, not
1.18, 7.64, 10.18.

Complementary slackness keeps every stage optimal. If the duals show that the first optimum is
unique, no stage is needed.
"""

from collections.abc import Callable

import numpy as np

from evenshare_core.formulations.lp import DUAL, ConstraintRows, LinearProgram
from evenshare_core.formulations.problems import Array, SolverError

# After this many stages, the simplex's vertex is used, which depends only on the order of the
# tenants.
STAGES = 64
ROUNDING = 1e-12  # slack of a fixed upper bound
INF = float("inf")

Complete = Callable[[Array], bool]


def min_max(
    model: LinearProgram, values: Array, speedups: Array, per_weight: Array, complete: Complete
) -> Array:
    """Return the columns of the optimum whose throughputs are lexicographically min-max.

    `model` is at its optimum `values`, the shares of one tenant after the other. The compared
    throughputs are `speedups[l] . shares[l] * per_weight[l]`. `complete` returns whether values
    satisfy all rows; otherwise it adds some violated rows to the model.
    """
    if not model.hold_optimum():
        return values
    tenants, types = speedups.shape
    top = model.add_column()
    first = int(model.highs.getNumRow())
    levels = speedups * per_weight[:, None]
    rows = ConstraintRows()
    for place, level in enumerate(levels):
        # The column `top` is at least each tenant's level: s - w_l . z_l >= 0.
        columns = np.append(np.arange(types) + place * types, top)
        rows.add(columns, np.append(-level, 1.0), 0.0, INF)
    try:
        model.add(rows)
    except SolverError:
        return values
    model.lower(top)
    open_ = np.ones(tenants, dtype=bool)
    for _ in range(STAGES):
        try:
            solution, duals = _solved(model, complete, tenants * types)
        except SolverError:
            # Rounding can make exactly fixed bounds infeasible; the last values are optimal too.
            return values
        values = solution[: tenants * types]
        lowered = open_ & (np.abs(duals[first : first + tenants]) > DUAL)
        open_ &= ~lowered
        if not lowered.any() or not open_.any():
            return values
        at = (levels * values.reshape(tenants, types)).sum(axis=1)
        for tenant in np.flatnonzero(lowered):
            # This level cannot be lowered without raising another level, so it is fixed as a
            # maximum.
            place = first + int(tenant)
            model.highs.changeCoeff(place, top, 0.0)
            model.highs.changeRowBounds(place, -float(at[tenant]) - ROUNDING, INF)
    return values


def _solved(model: LinearProgram, complete: Complete, columns: int) -> tuple[Array, Array]:
    while True:
        values, duals = model.solve()
        if complete(values[:columns]):
            return values, duals
