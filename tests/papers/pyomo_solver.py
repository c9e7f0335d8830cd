"""Configure HiGHS for Pyomo models: one thread, a fixed seed, no gap."""

from __future__ import annotations

import pyomo.environ as pyo
from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs

from evenshare_core.formulations.problems import SolverError

OPTIONS = {"threads": 1, "random_seed": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}


def solve(model: pyo.ConcreteModel) -> None:
    """Load the optimum into the variables of a model.

    Raises:
        SolverError: the status is not optimal.
    """
    solver = Highs()
    solver.config.load_solution = False
    solver.highs_options = dict(OPTIONS)
    result = solver.solve(model)
    if result.termination_condition != TerminationCondition.optimal:
        raise SolverError(f"HiGHS under Pyomo ended {result.termination_condition.name}")
    result.solution_loader.load_vars()
