"""The full programs for HiGHS, with every envy row.

The fast methods fall back to them, and tests compare the fast methods with them.
"""

import numpy as np

from evenshare_core.formulations.lp import ConstraintRows, LinearProgram
from evenshare_core.formulations.problems import Array
from evenshare_core.formulations.programs import Efficiency, EnvyFree, Levels, SolverResult
from evenshare_core.formulations.ties import min_max

INF = float("inf")


class Highs:
    """HiGHS: interior point with crossover for levels, simplex for the rest."""

    name = "highs"

    def levels(self, program: Levels) -> SolverResult:
        """Solve `Levels`; the columns are x row by row, then t."""
        tenants, types = program.speedups.shape
        rows = bounds(program.speedups, program.capacity, program.caps)
        first = len(rows.lower)
        for tenant, speeds in enumerate(program.speedups):
            # (9) equal throughput: w_l . x_l - rates_l t = 0; held tenants: w_l . x_l = held_at_l
            columns = np.append(np.arange(types) + tenant * types, tenants * types)
            held = program.held[tenant]
            level = program.held_at[tenant] if held else 0.0
            rate = 0.0 if held else program.rates[tenant]
            rows.add(columns, np.append(speeds, -rate), level, level if program.equal else INF)
        cost = np.append(np.zeros(tenants * types), 1.0)
        model = LinearProgram(cost, np.append(uppers(program.speedups), INF), rows)
        values, duals = model.solve_interior()
        return SolverResult(
            shares=clean(values[:-1].reshape(tenants, types), program.capacity),
            prices=duals[:types],
            cap_prices=cap_prices(duals[types:first], program.caps),
            level_prices=np.where(program.held, 0.0, -duals[first:]),
            backend=self.name,
        )

    def envy_free(self, program: EnvyFree) -> SolverResult:
        tenants = len(program.speedups)
        rows = bounds(program.speedups, program.capacity, program.caps)
        floors(rows, program)
        for tenant in np.flatnonzero(program.watched):
            for other in range(tenants):
                if other != tenant:
                    envy_row(rows, program, int(tenant), other)
        model = LinearProgram(program.speedups.ravel(), uppers(program.speedups), rows)
        values, duals = model.solve()
        values = min_max(
            model, values, program.speedups, 1 / program.weights, complete=lambda _: True
        )
        return self.result_of_rows(program, values, duals, self.name)

    def efficiency(self, program: Efficiency) -> SolverResult:
        rows = bounds(program.speedups, program.capacity, program.caps)
        model = LinearProgram(program.speedups.ravel(), uppers(program.speedups), rows)
        values, duals = model.solve()
        return self.result_of_rows(program, values, duals, self.name)

    def result_of_rows(
        self, program: EnvyFree | Efficiency, values: Array, duals: Array, name: str
    ) -> SolverResult:
        """Return the optimum of a program without levels, which the backend `name` found."""
        tenants, types = program.speedups.shape
        return SolverResult(
            shares=clean(values.reshape(tenants, types), program.capacity),
            prices=duals[:types],
            cap_prices=cap_prices(duals[types:], program.caps),
            level_prices=np.zeros(tenants),
            backend=name,
        )


def uppers(speedups: Array) -> Array:
    """Return the upper bounds of x: 0 if a tenant cannot run on the type."""
    return np.where(speedups.ravel() > 0, INF, 0.0)


def bounds(speedups: Array, capacity: Array, caps: Array) -> ConstraintRows:
    """Return the rows of capacity, one per type, then one row for each tenant with a finite cap."""
    tenants, types = speedups.shape
    rows = ConstraintRows()
    for type_index in range(types):
        # sum_l x_lj <= m_j
        rows.add(
            np.arange(tenants) * types + type_index, np.ones(tenants), -INF, capacity[type_index]
        )
    for tenant in np.flatnonzero(np.isfinite(caps)):
        # sum_j x_lj <= cap_l
        rows.add(np.arange(types) + tenant * types, np.ones(types), -INF, caps[tenant])
    return rows


def floors(rows: ConstraintRows, program: EnvyFree) -> None:
    """Add the floors of tenants whose cap binds: `w_l . x_l >= floors_l`."""
    types = program.speedups.shape[1]
    for tenant in np.flatnonzero(~program.watched):
        columns = np.arange(types) + tenant * types
        rows.add(columns, program.speedups[tenant], program.floors[tenant], INF)


def envy_row(rows: ConstraintRows, program: EnvyFree, tenant: int, other: int) -> None:
    """Add `w_l . x_l - (pi_l / pi_i) w_l . x_i >= 0`."""
    types = program.speedups.shape[1]
    own, theirs = (np.arange(types) + row * types for row in (tenant, other))
    speeds = program.speedups[tenant]
    ratio = program.weights[tenant] / program.weights[other]
    rows.add(np.append(own, theirs), np.append(speeds, -ratio * speeds), 0.0, INF)


def cap_prices(duals: Array, caps: Array) -> Array:
    """Return by tenant the duals of cap rows, which come first in `duals`; 0 without a cap."""
    prices = np.zeros(len(caps))
    capped = np.flatnonzero(np.isfinite(caps))
    prices[capped] = duals[: len(capped)]
    return prices


def clean(shares: Array, capacity: Array) -> Array:
    """Remove rounding errors: negative or tiny shares, and shares above a type's capacity."""
    dust = 1e-9 * max(1.0, float(capacity.sum()) / len(shares))
    cleaned = np.where(shares < dust, 0.0, shares)
    used = cleaned.sum(axis=0)
    scale = np.divide(capacity, used, out=np.ones_like(used), where=used > capacity)
    return np.asarray(cleaned * scale)
