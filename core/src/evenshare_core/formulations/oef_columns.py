"""Levels, OEF (9) and `gavel`, as an OR-Tools model with few of its n k columns.

At the optimum without caps, all but k - 1 tenants use a single GPU type. So most columns are left
out:

1. Prices are guessed, and each tenant gets the columns near its cheapest one, about 1.1 on average
   (`evenshare_core.formulations.oef_prices`). GLOP solves this program. A tenant with one column
   needs neither a column nor a row: its GPUs are a multiple of t, or constant if it is held.
2. All reduced costs `p_j + c_l - y_l w_lj` and all caps are checked. Columns with a negative
   reduced cost are added, and a row for each cap that is exceeded. The program is solved again
   until there are none. So the result is an optimum of the whole program.

The rows of `gavel` are `>=` instead of `=`. The optimum is the same, because surplus throughput can
be given up. So both have this model.

The cap of one tenant allows no level above `cap_l max_j w_lj / rates_l`. The least of these bounds
t, which saves the rows of most caps. The price of the bound is a price of that tenant's cap.

Source: OEF (Middleware 2024), (9); the method is ours.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evenshare_core.formulations import native
from evenshare_core.formulations.oef_prices import least, near_columns
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.formulations.programs import Levels, Mask, SolverResult

pywraplp = native.ortools("ortools.linear_solver.pywraplp")

SMALL = 128  # up to this number of columns, the first program has all of them
MOST = 50  # columns of a type that are added at a time
SOLVES = 200  # maximum number of programs; each has more columns or rows than the last one
REDUCED = 1e-12  # fraction of a column's cost; a smaller reduced cost is a rounding error
OVER = 1e-12  # fraction of a cap; a smaller excess is a rounding error
DUST = 1e-12  # fraction of a tenant's work; less of it on a type is a rounding error

# If rounding made the work of held tenants impossible, they give up the next of these fractions.
GIVEN_UP = (1e-12, 1e-10, 1e-8)
# With a dual tolerance of 1e-9, levels were too low by up to 2e-9.
PARAMETERS = (
    "random_seed: 1 primal_feasibility_tolerance: 1e-9 dual_feasibility_tolerance: 1e-14"
    " max_number_of_iterations: 2000000"
)


@dataclass(frozen=True, eq=False)
class Optimum:
    """The optimum of a program with some of the columns. `work` is w_lj x_lj."""

    work: Array
    prices: Array
    cap_prices: Array
    level_prices: Array


class FewColumns:
    """The columns and cap rows of a program of `Levels`; `solve` adds to them.

    `usable`: columns that may be above 0. `chosen`: columns of the program. `rowed`: tenants whose
    cap has a row. `size`: the work of a held tenant, or the work of another tenant at level 1.
    """

    def __init__(self, program: Levels, before: "FewColumns | None" = None) -> None:
        """Choose the first columns; `before`: those of the same program with fewer held tenants."""
        self.program = program
        self.usable = (program.speedups > 0) & (program.capacity > 0)
        best = np.where(self.usable, program.speedups, 0.0).max(axis=1)
        most = program.caps * best
        full = program.held & (program.held_at >= most * (1 - DUST))
        # Such a tenant holds its cap of its fastest types. On any other it would need more GPUs.
        self.usable[full] &= program.speedups[full] == best[full][:, None]
        self.per_work = np.divide(
            1.0, program.speedups, out=np.zeros_like(program.speedups), where=self.usable
        )
        self.size = np.where(program.held, np.minimum(program.held_at, most), program.rates)
        self.rowed = program.held & np.isfinite(program.caps) & ~full
        tops = np.where(program.held, np.inf, most / program.rates)
        self.tightest, self.top = int(tops.argmin()), float(tops.min())
        self.given_up = 0.0
        self.chosen = self._first(before)
        if before is not None:
            self.rowed |= before.rowed & ~full

    def _first(self, before: "FewColumns | None") -> Mask:
        """Return the first columns. Every tenant has one, and held tenants have the fastest one."""
        program = self.program
        if before is not None:
            chosen = before.chosen & self.usable
        elif self.usable.size <= SMALL:
            return self.usable.copy()
        else:
            reached = program.held_at / program.rates
            level = float(np.max(reached, where=program.held, initial=0.0)) or 1.0
            size = np.where(program.held, self.size, self.size * level)
            chosen = near_columns(program, self.usable, size)
        fastest = np.where(self.usable, program.speedups, 0.0).argmax(axis=1)
        chosen[program.held, fastest[program.held]] = True
        return chosen

    def solve(self, name: str) -> SolverResult:
        """Solve the whole program.

        Raises:
            SolverError: GLOP found no optimum, or columns were still added after `SOLVES`.
        """
        for _ in range(SOLVES):
            optimum = self.optimum()
            if optimum is None:
                self.widen()
            elif not self.add_violated(optimum):
                return self.result(optimum, name)
        raise SolverError(f"columns were still added after {SOLVES} programs")

    def optimum(self) -> Optimum | None:
        """Solve the program with the chosen columns; None if GLOP finds no optimum."""
        program = self.program
        model = FewColumnsModel(self)
        if not model.solve():
            return None
        work, prices, cap_prices = model.read()
        speeds = np.where(self.usable, program.speedups, 0.0)[self.tightest]
        price = max(0.0, model.level.reduced_cost())
        cap_prices[self.tightest] += price * speeds.max() / program.rates[self.tightest]
        costs = np.where(self.chosen, prices + cap_prices[:, None], np.inf)
        level_prices = (costs / np.where(self.chosen, program.speedups, 1.0)).min(axis=1)
        return Optimum(work, prices, cap_prices, level_prices)

    def add_violated(self, optimum: Optimum) -> bool:
        """Add columns of negative reduced cost and rows of exceeded caps; False if there are none.

        A tenant with a cap row gets all its columns.
        """
        costs = optimum.prices + optimum.cap_prices[:, None]
        values = optimum.level_prices[:, None] * self.program.speedups
        missing = self.usable & ~self.chosen & (costs < values * (1 - REDUCED))
        ratios = np.divide(costs, values, out=np.full(values.shape, np.inf), where=missing)
        gpus = (optimum.work * self.per_work).sum(axis=1)
        over = ~self.rowed & (gpus > self.program.caps * (1 + OVER))
        self.chosen |= missing & least(ratios, MOST)
        self.chosen[over] = self.usable[over]
        self.rowed |= over
        return bool(missing.any() or over.any())

    def widen(self) -> None:
        """Give held tenants all their columns, or less work if rounding made it impossible.

        GLOP then ends with infeasible or abnormal.

        Raises:
            SolverError: they have all their columns, and have given up the last of `GIVEN_UP`.
        """
        held = self.program.held
        if not self.chosen[held][self.usable[held]].all():
            self.chosen[held] = self.usable[held]
            return
        more = [part for part in GIVEN_UP if part > self.given_up]
        if not more:
            raise SolverError("GLOP found no optimum")
        self.size[held] *= (1 - more[0]) / (1 - self.given_up)
        self.given_up = more[0]

    def result(self, optimum: Optimum, name: str) -> SolverResult:
        """Return shares within the capacity.

        A type without GPUs costs as much as the level would gain by one.
        """
        program = self.program
        dust = optimum.work < DUST * optimum.work.sum(axis=1, keepdims=True)
        shares = np.where(dust, 0.0, optimum.work) * self.per_work
        used = shares.sum(axis=0)
        full = used > program.capacity
        shares *= np.divide(program.capacity, used, out=np.ones_like(used), where=full)
        values = optimum.level_prices[:, None] * program.speedups - optimum.cap_prices[:, None]
        prices = np.where(program.capacity > 0, optimum.prices, values.max(axis=0).clip(0.0))
        level_prices = np.where(program.held, 0.0, optimum.level_prices)
        return SolverResult(shares, prices, optimum.cap_prices, level_prices, name)


class FewColumnsModel:
    """The chosen columns in OR-Tools: the level, and parts of a tenant's size."""

    def __init__(self, columns: FewColumns) -> None:
        program, self.columns = columns.program, columns
        self.single = (columns.chosen.sum(axis=1) == 1) & ~columns.rowed
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.SetSolverSpecificParametersAsString(PARAMETERS)
        self.infinity = self.solver.infinity()
        self.level = self.solver.NumVar(0.0, min(columns.top, self.infinity), "")
        self.solver.Maximize(self.level)
        gpus = columns.size[:, None] * np.where(columns.chosen, columns.per_work, 0.0)
        free = program.capacity - gpus[self.single & program.held].sum(axis=0)
        rising = gpus[self.single & ~program.held].sum(axis=0)
        self.capacity = [self._at_most(bound) for bound in free.tolist()]
        for row, coefficient in zip(self.capacity, rising.tolist(), strict=True):
            row.SetCoefficient(self.level, coefficient)
        self.caps: dict[int, Any] = {}
        self.parts: list[Any] = []
        self.places = np.nonzero(columns.chosen & ~self.single[:, None])
        needed, last = gpus[self.places].tolist(), -1
        for tenant, gpu_type, gpu in zip(*(p.tolist() for p in self.places), needed, strict=True):
            if tenant != last:
                work, cap = self._rows(tenant)
                last = tenant
            part = self.solver.NumVar(0.0, self.infinity, "")
            work.SetCoefficient(part, 1.0)
            self.capacity[gpu_type].SetCoefficient(part, gpu)
            if cap is not None:
                cap.SetCoefficient(part, gpu)
            self.parts.append(part)

    def _at_most(self, bound: float) -> Any:
        return self.solver.Constraint(-self.infinity, bound)

    def _rows(self, tenant: int) -> tuple[Any, Any]:
        """Add the row of a tenant's work, and the row of its cap if it has one."""
        program = self.columns.program
        if program.held[tenant]:
            work = self.solver.Constraint(1.0, 1.0)  # sum_j parts = 1
        else:
            work = self.solver.Constraint(0.0, 0.0)  # sum_j parts - t = 0
            work.SetCoefficient(self.level, -1.0)
        if self.columns.rowed[tenant]:
            self.caps[tenant] = self._at_most(float(program.caps[tenant]))
        return work, self.caps.get(tenant)

    def solve(self) -> bool:
        """Return whether GLOP found an optimum."""
        return bool(self.solver.Solve() == pywraplp.Solver.OPTIMAL)

    def read(self) -> tuple[Array, Array, Array]:
        """Return the work by tenant and type, the prices of types, and the prices of caps."""
        columns = self.columns
        alone = np.where(columns.program.held, 1.0, self.level.solution_value())
        parts = np.where(self.single[:, None] & columns.chosen, alone[:, None], 0.0)
        parts[self.places] = [part.solution_value() for part in self.parts]
        prices = np.array([row.dual_value() for row in self.capacity])
        caps = np.zeros(len(parts))
        for tenant, row in self.caps.items():
            caps[tenant] = row.dual_value()
        return parts * columns.size[:, None], prices.clip(0.0), caps.clip(0.0)
