"""Compute optimal rewards of the compact program of UniSched's Selector with other solvers.

They check `evenshare_core.formulations.selector_lp`. With `whole`, each column (a job's step on an
option) is taken completely or not at all; otherwise fractions are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyomo.environ as pyo

from evenshare_core.deadlines.compact import CompactProgram
from evenshare_core.formulations import native
from evenshare_core.formulations.problems import SolverError
from evenshare_core.units import REWARD_MICRO

from .pyomo_solver import solve

pywraplp = native.ortools("ortools.linear_solver.pywraplp")


def reward_by_ortools(program: CompactProgram, *, whole: bool) -> float:
    """Solve by SCIP if `whole`, otherwise by GLOP; return millionths of a point."""
    solver = pywraplp.Solver.CreateSolver("SCIP" if whole else "GLOP")
    shares = [solver.BoolVar("") if whole else solver.NumVar(0, 1, "") for _ in program.columns]
    for job in range(len(program.problem.jobs)):
        solver.Add(sum(shares[number] for number in np.flatnonzero(program.jobs == job)) <= 1)
    for row in program.rows:
        usage = program.usage(row)
        terms = [int(usage[number]) * shares[number] for number in np.flatnonzero(usage)]
        solver.Add(sum(terms) <= row.units)
    rewards = program.rewards / REWARD_MICRO
    solver.Maximize(sum(reward * share for reward, share in zip(rewards, shares, strict=True)))
    parameters = pywraplp.MPSolverParameters()
    parameters.SetDoubleParam(parameters.RELATIVE_MIP_GAP, 0.0)
    status = solver.Solve(parameters)
    if status != solver.OPTIMAL:
        raise SolverError(f"OR-Tools ended with status {status}")
    return _reward(program, [share.solution_value() for share in shares], whole=whole)


def reward_by_pyomo(program: CompactProgram, *, whole: bool) -> float:
    """Solve by HiGHS; return millionths of a point."""
    if not program.columns:
        return 0.0  # HiGHS has no status for an empty model
    model = pyo.ConcreteModel()
    model.c = pyo.RangeSet(0, len(program.columns) - 1)
    model.s = pyo.Var(model.c, within=pyo.Binary if whole else pyo.UnitInterval)
    model.once = pyo.ConstraintList()
    for job in np.unique(program.jobs):
        model.once.add(pyo.quicksum(model.s[c] for c in np.flatnonzero(program.jobs == job)) <= 1)
    model.capacity = pyo.ConstraintList()
    for row in program.rows:
        usage = program.usage(row)
        columns = np.flatnonzero(usage)
        if len(columns):
            model.capacity.add(
                pyo.quicksum(int(usage[c]) * model.s[c] for c in columns) <= row.units
            )
    model.reward = pyo.Objective(
        expr=pyo.quicksum(
            program.columns[c].reward_micro / REWARD_MICRO * model.s[c] for c in model.c
        ),
        sense=pyo.maximize,
    )
    solve(model)
    return _reward(program, [model.s[c].value for c in model.c], whole=whole)


def _reward(program: CompactProgram, shares: Sequence[float], *, whole: bool) -> float:
    """Return the reward. It is exact for whole columns, because solver values are rounded."""
    values = np.array(shares, dtype=np.float64)
    return float((program.rewards * (values.round() if whole else values)).sum())
