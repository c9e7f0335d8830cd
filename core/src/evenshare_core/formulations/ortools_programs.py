"""Linear and 0-1 programs in OR-Tools with reproducible results: GLOP, and CP-SAT on one worker.

The work of the solvers is limited, never their time. Programs are stated in
`model_builder_helper`, the layer below OR-Tools' `model_builder`, which would import pandas.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations import native
from evenshare_core.formulations.lp import ConstraintRows
from evenshare_core.formulations.problems import Array, SolverError

GLOP = (
    "random_seed: 1 primal_feasibility_tolerance: 1e-9 dual_feasibility_tolerance: 1e-9"
    " max_number_of_iterations: {}"
)
CP_SAT = (
    "num_workers: 1 random_seed: 0 cp_model_presolve: false linearization_level: 2"
    " catch_sigint_signal: false"
    " max_deterministic_time: {}"
)


@cache
def _helper() -> Any:
    """Return OR-Tools' module, which is large and imported at first use.

    Raises:
        ImportError: OR-Tools is not installed.
    """
    return native.ortools("ortools.linear_solver.python.model_builder_helper")


class GlopProgram:
    """A linear program `max cost . x, 0 <= x <= upper`, to which rows can be added."""

    def __init__(self, cost: Array, upper: Array, rows: ConstraintRows) -> None:
        self._program = _OrToolsModel(cost, upper, whole=False)
        self._steps = 0
        self.add(rows)

    def limit(self, steps: int) -> None:
        """Limit the steps of the next solve."""
        self._steps = steps

    def add(self, rows: ConstraintRows) -> None:
        self._program.add(rows)

    def solve(self) -> tuple[Array, Array]:
        """Return the values of columns and the duals of rows at the optimum.

        Raises:
            SolverError: the status is not optimal.
        """
        solved = self._program.run("glop", GLOP.format(self._steps))
        if solved.status() != _helper().SolveStatus.OPTIMAL:
            raise SolverError(f"GLOP ended {solved.status_string() or solved.status().name}")
        return np.array(solved.variable_values()), np.array(solved.dual_values())

    def counted_steps(self) -> int:
        """Return 0: OR-Tools does not report the steps of GLOP, so each solve has its own limit."""
        return 0


def choose_whole(
    rewards: Array, rows: ConstraintRows, *, work: float
) -> tuple[NDArray[np.bool_] | None, float, bool]:
    """Maximise `rewards . x` under the rows by CP-SAT, with each x either 0 or 1.

    All numbers are whole. Return the best x found (`None` without one), an upper bound, and whether
    x is optimal. `work` limits CP-SAT's deterministic time; a unit is about a second.

    Raises:
        SolverError: CP-SAT finds that no x meets the rows, or refuses a value.
    """
    model = _OrToolsModel(rewards, np.ones(len(rewards)), whole=True)
    model.add(rows)
    solved = model.run("sat", CP_SAT.format(work))
    status, known = solved.status(), _helper().SolveStatus
    if status in (known.OPTIMAL, known.FEASIBLE):
        taken = np.array(solved.variable_values()) > 1 / 2
        return taken, float(solved.best_objective_bound()), bool(status == known.OPTIMAL)
    if status in (known.UNKNOWN_STATUS, known.NOT_SOLVED):
        return None, float(np.maximum(rewards, 0).sum()), False
    raise SolverError(f"CP-SAT ended {solved.status_string() or status.name}")


class _OrToolsModel:
    def __init__(self, cost: Array, upper: Array, *, whole: bool) -> None:
        helper = _helper()
        self._model = helper.ModelBuilderHelper()
        count = len(cost)
        integral = np.full(count, whole)
        columns = self._model.add_var_array_with_bounds(np.zeros(count), upper, integral, "")
        indices = columns.tolist()
        self._columns = [helper.Variable(self._model, index) for index in indices]
        self._model.set_objective_coefficients(indices, cost.tolist())
        self._model.set_maximize(True)

    def add(self, rows: ConstraintRows) -> None:
        model, columns = self._model, self._columns
        for indices, values, lower, upper in zip(
            rows.indices, rows.values, rows.lower, rows.upper, strict=True
        ):
            row = model.add_linear_constraint()
            model.set_constraint_lower_bound(row, lower)
            model.set_constraint_upper_bound(row, upper)
            terms = [columns[index] for index in indices.tolist()]
            model.add_terms_to_constraint(row, terms, values.tolist())

    def run(self, solver: str, parameters: str) -> Any:
        solved = _helper().ModelSolverHelper(solver)
        solved.set_solver_specific_parameters(parameters)
        solved.solve(self._model)
        return solved
