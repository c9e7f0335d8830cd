"""HiGHS with reproducible results: one thread, a fixed seed, and no time limit.

The number of iterations is limited instead. Tolerances are 1e-9, because the default of 1e-7 gives
relative errors of 2e-7. Interior point must end with a crossover to a vertex: other optima can have
more than n + k - 1 non-zeros.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from evenshare_core.fairness.solver import SilentHighs
from evenshare_core.formulations.problems import Array, SolverError

ITERATIONS = 2_000_000  # simplex iterations
# interior-point iterations; a few dozen, unless it cycles at the optimum
INTERIOR = 1_000
TOLERANCE = 1e-9
DUAL = 1e-7  # smaller duals are rounding errors, in a program whose values are about 1
OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "simplex_iteration_limit": ITERATIONS,
    "ipm_iteration_limit": INTERIOR,
    "run_crossover": "on",
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


@dataclass(eq=False)
class ConstraintRows:
    """Rows of a linear program: `lower <= values . x[indices] <= upper`."""

    indices: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(
        self, indices: NDArray[np.integer[Any]], values: Array, lower: float, upper: float
    ) -> None:
        """Add one row without its zeros, since HiGHS would warn about them."""
        kept = np.flatnonzero(values)
        self.indices.append(np.asarray(indices, dtype=np.int32)[kept])
        self.values.append(np.asarray(values, dtype=np.float64)[kept])
        self.lower.append(lower)
        self.upper.append(upper)

    def packed(self) -> tuple[Array, Array, NDArray[np.int32], NDArray[np.int32], Array]:
        """Return lower and upper bounds, starts, indices and values for HiGHS."""
        sizes = [len(row) for row in self.indices]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        return (
            np.array(self.lower),
            np.array(self.upper),
            starts if sizes else np.zeros(0, np.int32),
            np.concatenate(self.indices) if sizes else np.zeros(0, np.int32),
            np.concatenate(self.values) if sizes else np.zeros(0),
        )


def pass_program(
    highs: SilentHighs,
    options: Mapping[str, bool | int | float | str],
    cost: Array,
    upper: Array,
    rows: ConstraintRows,
    *,
    is_whole: bool,
) -> highspy.HighsStatus:
    """Set options, and `max cost . x, 0 <= x <= upper` with the rows; `is_whole`: x is whole."""
    for name, value in options.items():
        highs.setOptionValue(name, value)
    lower_rows, upper_rows, starts, indices, values = rows.packed()
    columns = len(cost)
    return highs.passModel(
        columns,
        len(lower_rows),
        len(values),
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMaximize),
        0.0,  # constant term of the objective
        cost,
        np.zeros(columns),
        upper,
        lower_rows,
        upper_rows,
        starts,
        indices,
        values,
        np.full(columns, is_whole, np.int32),
    )


class LinearProgram:
    """A linear program in HiGHS, maximised; rows can be added, and each solve is warm-started."""

    def __init__(self, cost: Array, upper: Array, rows: ConstraintRows) -> None:
        """Set up `max cost . x, 0 <= x <= upper` with the rows.

        Raises:
            SolverError: HiGHS refuses a value. Adding rows raises it too.
        """
        self.highs = SilentHighs()
        _taken(pass_program(self.highs, OPTIONS, cost, upper, rows, is_whole=False))

    def option(self, name: str, value: bool | int | float | str) -> None:
        self.highs.setOptionValue(name, value)

    def add(self, rows: ConstraintRows) -> None:
        """Add rows; the next solve starts from the last basis."""
        lower, upper, starts, indices, values = rows.packed()
        if len(lower):
            _taken(
                self.highs.addRows(len(lower), lower, upper, len(values), starts, indices, values)
            )

    def add_block(self, indices: NDArray[np.int64], values: Array, lower: float) -> None:
        """Add rows `values . x[indices] >= lower`; both arrays have shape rows x length."""
        count, length = indices.shape
        starts = (np.arange(count) * length).astype(np.int32)
        flat = indices.ravel().astype(np.int32)
        low, high = np.full(count, lower), np.full(count, highspy.kHighsInf)
        _taken(self.highs.addRows(count, low, high, count * length, starts, flat, values.ravel()))

    def solve(self) -> tuple[Array, Array]:
        """Return the values of columns and the duals of rows at the optimum.

        Raises:
            SolverError: the status is not optimal, or the optimum has no duals.
        """
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"HiGHS ended with {self.highs.modelStatusToString(status)!r}")
        solution = self.highs.getSolution()
        if not solution.dual_valid:
            raise SolverError("HiGHS ended without duals")
        return np.array(solution.col_value), np.array(solution.row_dual)

    def solve_interior(self) -> tuple[Array, Array]:
        """Solve by interior point, or by simplex if interior point finds no optimum.

        Raises:
            SolverError: as `solve`.
        """
        self.option("solver", "ipm")
        try:
            return self.solve()
        except SolverError:
            self.highs.clearSolver()
            self.option("solver", "simplex")
            return self.solve()

    def objective(self) -> float:
        """Return the value of the last optimum."""
        return float(self.highs.getInfo().objective_function_value)

    def basic_rows(self) -> NDArray[np.bool_]:
        """Return which rows are basic at the last optimum; these do not bind."""
        basic = highspy.HighsBasisStatus.kBasic
        return np.array([status == basic for status in self.highs.getBasis().row_status])

    def drop(self, gone: NDArray[np.bool_]) -> None:
        """Drop basic rows; the rest of the basis stays, so the next solve is warm-started."""
        basis = self.highs.getBasis()
        kept = highspy.HighsBasis()
        kept.col_status = basis.col_status
        kept.row_status = [
            status for status, away in zip(basis.row_status, gone, strict=True) if not away
        ]
        kept.valid, kept.alien = True, False
        index = np.flatnonzero(gone).astype(np.int32)
        self.highs.deleteRows(len(index), index)
        self.highs.setBasis(kept)

    def hold_optimum(self) -> bool:
        """Fix columns and rows with a dual at their bounds, so all remaining points are optimal.

        By complementary slackness, columns with a reduced cost keep their value, and rows with a
        dual stay at their bound. Return whether a nonbasic column or row without a dual is left, so
        that the optimum may not be unique.
        """
        solution, basis, model = self.highs.getSolution(), self.highs.getBasis(), self.highs.getLp()
        columns, at, some = resting(
            *(solution.col_dual, basis.col_status, model.col_lower_, model.col_upper_)
        )
        self.highs.changeColsBounds(len(columns), columns, at, at)
        rows, at, others = resting(
            *(solution.row_dual, basis.row_status, model.row_lower_, model.row_upper_)
        )
        for row, bound in zip(rows, at, strict=True):
            self.highs.changeRowBounds(int(row), float(bound), float(bound))
        return some or others

    def lower(self, column: int) -> None:
        """Set the objective to the minimum of one column."""
        columns = self.highs.getNumCol()
        cost = np.zeros(columns)
        cost[column] = -1.0
        self.highs.changeColsCost(columns, np.arange(columns, dtype=np.int32), cost)

    def add_column(self) -> int:
        """Add a column of at least 0 that the objective does not contain; return its index."""
        self.highs.addCol(0.0, 0.0, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
        return int(self.highs.getNumCol()) - 1


def _taken(status: highspy.HighsStatus) -> None:
    """Raise if HiGHS refused a value: it then drops all rows, and only the status shows it."""
    if status == highspy.HighsStatus.kError:
        raise SolverError("HiGHS rejects a value of the program")


def resting(
    duals: Sequence[float],
    statuses: Sequence[highspy.HighsBasisStatus],
    lower: Sequence[float],
    upper: Sequence[float],
) -> tuple[NDArray[np.int32], Array, bool]:
    """Return indices and bounds of nonbasic entries with a dual, and whether some have no dual.

    Each column or row here has one finite bound, or two equal bounds.
    """
    low, high = np.array(lower), np.array(upper)
    basic = np.array([status == highspy.HighsBasisStatus.kBasic for status in statuses])
    movable = ~basic & (low < high)
    bound = movable & (np.abs(np.array(duals)) > DUAL)
    at = np.where(np.isinf(low), high, low)
    return np.flatnonzero(bound).astype(np.int32), at[bound], bool((movable & ~bound).any())
