"""The compact program of UniSched's Selector in Pyomo, solved by HiGHS; there to be read.

s[c]: whether column c, a job's step on an option, is taken.
"""

from __future__ import annotations

import numpy as np
import pyomo.environ as pyo
from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs as Solver

from evenshare_core.deadlines.compact import CompactProgram
from evenshare_core.formulations.problems import SolverError
from evenshare_core.units import REWARD_MICRO
from evenshare_research.formulations.selector_optimum import CompactOptimum

OPTIONS = {"threads": 1, "random_seed": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}


def optimum_by_pyomo(program: CompactProgram, *, whole: bool) -> CompactOptimum:
    """Maximise the reward of columns under the rows; `whole`: each is taken or not.

    Raises:
        SolverError: the status is anything but optimal.
    """
    if not program.columns:
        return CompactOptimum.of(program, [], whole=whole)  # HiGHS has no name for this.
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
    solver = Solver()
    solver.config.load_solution = False
    solver.highs_options = dict(OPTIONS)
    result = solver.solve(model)
    if result.termination_condition != TerminationCondition.optimal:
        raise SolverError(f"HiGHS under Pyomo ended {result.termination_condition.name}")
    result.solution_loader.load_vars()
    return CompactOptimum.of(program, [model.s[c].value for c in model.c], whole=whole)
