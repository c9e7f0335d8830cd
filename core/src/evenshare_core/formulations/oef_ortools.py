"""The programs in OR-Tools, solved by GLOP: a cross-check for tests and benchmarks.

At 3,000 tenants, GLOP has returned ABNORMAL, or an objective of 0 without an error. So the status
is checked before any value is read. Results are deterministic: simplex on one thread, no time
limit.
"""

from typing import Any

import numpy as np

from evenshare_core.formulations import native
from evenshare_core.formulations.oef_highs import clean
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.formulations.programs import Efficiency, EnvyFree, Levels, SolverResult

pywraplp = native.ortools("ortools.linear_solver.pywraplp")
PARAMETERS = (
    "random_seed: 1 primal_feasibility_tolerance: 1e-9 dual_feasibility_tolerance: 1e-9"
    " max_number_of_iterations: 2000000"
)
STATUS = {
    pywraplp.Solver.FEASIBLE: "feasible, not optimal",
    pywraplp.Solver.INFEASIBLE: "infeasible",
    pywraplp.Solver.UNBOUNDED: "unbounded",
    pywraplp.Solver.ABNORMAL: "abnormal",
    pywraplp.Solver.NOT_SOLVED: "not solved",
}


class OrTools:
    name = "ortools"

    def levels(self, program: Levels) -> SolverResult:
        model = Model(program.speedups, program.capacity, program.caps)
        level = model.solver.NumVar(0, model.solver.infinity(), "t")
        rows = []
        for tenant in range(model.tenants):
            work = model.work(tenant, tenant)
            if program.held[tenant]:
                target = float(program.held_at[tenant])
            else:
                target = float(program.rates[tenant]) * level
            # (9): every tenant is at the level; if not `equal`, the level is a floor.
            rows.append(model.solver.Add(work == target if program.equal else work >= target))
        model.solver.Maximize(level)
        model.solve()
        duals = np.array([-row.dual_value() for row in rows])
        return model.answer(self.name, np.where(program.held, 0.0, duals))

    def envy_free(self, program: EnvyFree) -> SolverResult:
        model = Model(program.speedups, program.capacity, program.caps)
        for tenant in range(model.tenants):
            own = model.work(tenant, tenant)
            if not program.watched[tenant]:
                model.solver.Add(own >= float(program.floors[tenant]))
                continue
            for other in range(model.tenants):
                if other != tenant:
                    # (10) own share >= the other's share, per unit of weight
                    ratio = float(program.weights[tenant] / program.weights[other])
                    model.solver.Add(own >= ratio * model.work(tenant, other))
        model.maximize_total()
        model.solve()
        return model.answer(self.name, np.zeros(model.tenants))

    def efficiency(self, program: Efficiency) -> SolverResult:
        model = Model(program.speedups, program.capacity, program.caps)
        model.maximize_total()
        model.solve()
        return model.answer(self.name, np.zeros(model.tenants))


class Model:
    """The variables and rows of all programs: shares, capacity and caps."""

    def __init__(self, speedups: Array, capacity: Array, caps: Array) -> None:
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.SetSolverSpecificParametersAsString(PARAMETERS)
        self.speedups, self.total = speedups, capacity
        self.tenants, self.types = speedups.shape
        most = np.where(speedups > 0, self.solver.infinity(), 0.0)
        self.shares = [
            [
                self.solver.NumVar(0, most[tenant, type_index], "")
                for type_index in range(self.types)
            ]
            for tenant in range(self.tenants)
        ]
        self.capacity = [
            self.solver.Add(
                self.solver.Sum(row[type_index] for row in self.shares) <= capacity[type_index]
            )
            for type_index in range(self.types)
        ]
        self.caps = {
            tenant: self.solver.Add(self.solver.Sum(self.shares[tenant]) <= caps[tenant])
            for tenant in range(self.tenants)
            if np.isfinite(caps[tenant])
        }

    def work(self, tenant: int, other: int) -> Any:
        """Return the throughput that `tenant` would have with the shares of `other`."""
        speeds = self.speedups[tenant]
        return self.solver.Sum(
            float(speed) * share for speed, share in zip(speeds, self.shares[other], strict=True)
        )

    def maximize_total(self) -> None:
        """Set the objective to the sum of all throughputs."""
        self.solver.Maximize(self.solver.Sum(self.work(row, row) for row in range(self.tenants)))

    def solve(self) -> None:
        """Run GLOP.

        Raises:
            SolverError: the status is not optimal.
        """
        status = self.solver.Solve()
        if status != pywraplp.Solver.OPTIMAL:
            raise SolverError(f"GLOP ended {STATUS.get(status, status)}")

    def answer(self, name: str, level_prices: Array) -> SolverResult:
        """Return the optimum that `solve` found."""
        shares = np.array([[share.solution_value() for share in row] for row in self.shares])
        caps = np.zeros(self.tenants)
        for tenant, row in self.caps.items():
            caps[tenant] = row.dual_value()
        prices = np.array([row.dual_value() for row in self.capacity])
        return SolverResult(clean(shares, self.total), prices, caps, level_prices, name)
