"""The programs in Pyomo, close to the paper's notation, for reading and cross-checks.

HiGHS solves them through Pyomo's own interface, on one thread without a time limit. This is slow,
because Pyomo builds every row as an expression.
"""

from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs as Solver

from evenshare_core.formulations.lp import OPTIONS
from evenshare_core.formulations.oef_highs import clean
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.formulations.programs import Efficiency, EnvyFree, Levels, SolverResult

INF = float("inf")


class Pyomo:
    name = "pyomo"

    def levels(self, program: Levels) -> SolverResult:
        model = shared(program.speedups, program.capacity, program.caps)
        model.t = pyo.Var(within=pyo.NonNegativeReals)

        def level(model: pyo.ConcreteModel, tenant: int) -> Any:
            # (9): every tenant is at the level; if not `equal`, the level is a floor.
            held = program.held[tenant]
            rate = 0.0 if held else float(program.rates[tenant])
            target = float(program.held_at[tenant]) if held else 0.0
            rest = work(model, program.speedups, tenant, tenant) - rate * model.t
            return rest == target if program.equal else rest >= target

        model.level = pyo.Constraint(model.tenants, rule=level)
        model.objective = pyo.Objective(expr=model.t, sense=pyo.maximize)
        duals = run(model)
        prices = np.array([-duals[row] for row in model.level.values()])
        return answer(
            self.name, model, program.capacity, duals, np.where(program.held, 0.0, prices)
        )

    def envy_free(self, program: EnvyFree) -> SolverResult:
        model = shared(program.speedups, program.capacity, program.caps)

        def envy(model: pyo.ConcreteModel, tenant: int, other: int) -> Any:
            # (10) own share >= the other's share, per unit of weight
            if tenant == other or not program.watched[tenant]:
                return pyo.Constraint.Skip
            ratio = float(program.weights[tenant] / program.weights[other])
            own = work(model, program.speedups, tenant, tenant)
            return own - ratio * work(model, program.speedups, tenant, other) >= 0

        def floor(model: pyo.ConcreteModel, tenant: int) -> Any:
            if program.watched[tenant]:
                return pyo.Constraint.Skip
            return work(model, program.speedups, tenant, tenant) >= float(program.floors[tenant])

        model.envy = pyo.Constraint(model.tenants, model.tenants, rule=envy)
        model.floor = pyo.Constraint(model.tenants, rule=floor)
        return total(self.name, model, program.speedups, program.capacity)

    def efficiency(self, program: Efficiency) -> SolverResult:
        model = shared(program.speedups, program.capacity, program.caps)
        return total(self.name, model, program.speedups, program.capacity)


def shared(speedups: Array, capacity: Array, caps: Array) -> pyo.ConcreteModel:
    """Build the variables and rows of all programs: shares, capacity and caps."""
    model = pyo.ConcreteModel()
    model.tenants = pyo.RangeSet(0, speedups.shape[0] - 1)
    model.types = pyo.RangeSet(0, speedups.shape[1] - 1)

    def most(_: pyo.ConcreteModel, tenant: int, type_index: int) -> tuple[float, float | None]:
        return (0.0, None if speedups[tenant, type_index] > 0 else 0.0)

    model.x = pyo.Var(model.tenants, model.types, bounds=most)

    def capacity_row(model: pyo.ConcreteModel, type_index: int) -> Any:
        return sum(model.x[tenant, type_index] for tenant in model.tenants) <= float(
            capacity[type_index]
        )

    def cap_row(model: pyo.ConcreteModel, tenant: int) -> Any:
        if np.isinf(caps[tenant]):
            return pyo.Constraint.Skip
        return sum(model.x[tenant, type_index] for type_index in model.types) <= float(caps[tenant])

    model.capacity = pyo.Constraint(model.types, rule=capacity_row)
    model.caps = pyo.Constraint(model.tenants, rule=cap_row)
    return model


def work(model: pyo.ConcreteModel, speedups: Array, tenant: int, other: int) -> Any:
    """Return the throughput that `tenant` would have with the shares of `other`."""
    return sum(
        float(speedups[tenant, type_index]) * model.x[other, type_index]
        for type_index in model.types
    )


def total(name: str, model: pyo.ConcreteModel, speedups: Array, capacity: Array) -> SolverResult:
    """Maximise the sum of all throughputs."""
    everybody = sum(work(model, speedups, row, row) for row in model.tenants)
    model.objective = pyo.Objective(expr=everybody, sense=pyo.maximize)
    return answer(name, model, capacity, run(model), np.zeros(len(speedups)))


def run(model: pyo.ConcreteModel) -> dict[Any, float]:
    """Solve, load the optimum into the model's variables, and return the duals.

    Raises:
        SolverError: the status is not optimal.
    """
    solver = Solver()
    solver.config.load_solution = False
    solver.highs_options = {key: OPTIONS[key] for key in OPTIONS if key != "output_flag"}
    result = solver.solve(model)
    if result.termination_condition != TerminationCondition.optimal:
        raise SolverError(f"HiGHS under Pyomo ended {result.termination_condition.name}")
    result.solution_loader.load_vars()
    return dict(result.solution_loader.get_duals())


def answer(
    name: str,
    model: pyo.ConcreteModel,
    capacity: Array,
    duals: dict[Any, float],
    level_prices: Array,
) -> SolverResult:
    """Return the optimum that `run` found."""
    shares = np.array(
        [[model.x[row, type_index].value for type_index in model.types] for row in model.tenants]
    )
    caps = np.zeros(len(shares))
    for tenant, row in model.caps.items():
        caps[tenant] = duals[row]
    prices = np.array([duals[row] for row in model.capacity.values()])
    return SolverResult(clean(shares, capacity), prices, caps, level_prices, name)
