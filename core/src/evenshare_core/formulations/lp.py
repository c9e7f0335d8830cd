"""HiGHS, called so that the same program gives the same bytes: one thread, seed, no clock.

Wall time is never a limit; iterations are. Tolerances are 1e-9 because the default of 1e-7 errs
by 2e-7 relative. Interior point ends with a crossover to a vertex, without which the bound of
n + k - 1 non-zeros is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from evenshare_core.fairness.solver import SilentHighs
from evenshare_core.formulations.problems import Array, SolverError

ITERATIONS = 2_000_000  # of simplex
INTERIOR = 1_000  # of interior point, which takes some dozens or circles about the optimum
TOLERANCE = 1e-9
DUAL = 1e-7  # a dual above this is not rounding, in a program whose values are about 1
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
    """Rows of a linear program as they are collected: `lower <= values . x[indices] <= upper`."""

    indices: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(
        self, indices: NDArray[np.integer[Any]], values: Array, lower: float, upper: float
    ) -> None:
        """Add one row; zeros are left out, as HiGHS would warn of them."""
        kept = np.flatnonzero(values)
        self.indices.append(np.asarray(indices, dtype=np.int32)[kept])
        self.values.append(np.asarray(values, dtype=np.float64)[kept])
        self.lower.append(lower)
        self.upper.append(upper)

    def packed(self) -> tuple[Array, Array, NDArray[np.int32], NDArray[np.int32], Array]:
        """Give bounds, starts, indices and values as HiGHS takes them."""
        sizes = [len(row) for row in self.indices]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        return (
            np.array(self.lower),
            np.array(self.upper),
            starts if sizes else np.zeros(0, np.int32),
            np.concatenate(self.indices) if sizes else np.zeros(0, np.int32),
            np.concatenate(self.values) if sizes else np.zeros(0),
        )


class LinearProgram:
    """One linear program in HiGHS, maximised; rows can be added, and it starts where it ended."""

    def __init__(self, cost: Array, upper: Array, rows: ConstraintRows) -> None:
        """Pass `max cost . x, 0 <= x <= upper` and the rows.

        Raises:
            SolverError: HiGHS refuses a value; the same for rows that are added later.
        """
        self.highs = SilentHighs()
        for name, value in OPTIONS.items():
            self.highs.setOptionValue(name, value)
        lower_rows, upper_rows, starts, indices, values = rows.packed()
        columns = len(cost)
        taken = self.highs.passModel(
            columns,
            len(lower_rows),
            len(values),
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMaximize),
            0.0,  # offset
            cost,
            np.zeros(columns),
            upper,
            lower_rows,
            upper_rows,
            starts,
            indices,
            values,
            np.zeros(columns, np.int32),  # all columns are continuous
        )
        _taken(taken)

    def option(self, name: str, value: bool | int | float | str) -> None:
        """Set an option of HiGHS."""
        self.highs.setOptionValue(name, value)

    def add(self, rows: ConstraintRows) -> None:
        """Add rows; the next solve starts from the basis of the last."""
        lower, upper, starts, indices, values = rows.packed()
        if len(lower):
            _taken(
                self.highs.addRows(len(lower), lower, upper, len(values), starts, indices, values)
            )

    def add_block(self, indices: NDArray[np.int64], values: Array, lower: float) -> None:
        """Add rows `values . x[indices] >= lower`, all of one length, shape rows x length."""
        count, length = indices.shape
        starts = (np.arange(count) * length).astype(np.int32)
        flat = indices.ravel().astype(np.int32)
        low, high = np.full(count, lower), np.full(count, highspy.kHighsInf)
        _taken(self.highs.addRows(count, low, high, count * length, starts, flat, values.ravel()))

    def solve(self) -> tuple[Array, Array]:
        """Return the values of columns and the duals of rows at the optimum.

        Raises:
            SolverError: the status is anything but optimal, or the optimum came without duals.
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
        """Solve by interior point, or by simplex where that ends without an optimum.

        Raises: as `solve`.
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
        """Say which rows of the last optimum are basic: they bind nothing."""
        basic = highspy.HighsBasisStatus.kBasic
        return np.array([status == basic for status in self.highs.getBasis().row_status])

    def drop(self, gone: NDArray[np.bool_]) -> None:
        """Drop rows that are basic; the basis of the others stays, so the next solve is warm."""
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
        """Bind what the optimum's duals prove to bind, so that all that is left is as good.

        Complementary slackness: columns with a reduced cost stay where they are, rows with a dual
        stay at their bound. Returns whether anything can still move: some column or row that is
        not basic has no dual.
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
        """Minimise one column from now on."""
        columns = self.highs.getNumCol()
        cost = np.zeros(columns)
        cost[column] = -1.0
        self.highs.changeColsCost(columns, np.arange(columns, dtype=np.int32), cost)

    def add_column(self) -> int:
        """Add a column without cost that may take any value from 0; returns its number."""
        self.highs.addCol(0.0, 0.0, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
        return int(self.highs.getNumCol()) - 1


def _taken(status: highspy.HighsStatus) -> None:
    """HiGHS leaves out all rows where one value is too large for it, and only says so here."""
    if status == highspy.HighsStatus.kError:
        raise SolverError("HiGHS refuses a value of the program")


def resting(
    duals: Sequence[float],
    statuses: Sequence[highspy.HighsBasisStatus],
    lower: Sequence[float],
    upper: Sequence[float],
) -> tuple[NDArray[np.int32], Array, bool]:
    """Find what rests at a bound with a dual: place and bound; and if some rest without a dual.

    Columns and rows here have one finite bound, or two that are equal.
    """
    low, high = np.array(lower), np.array(upper)
    basic = np.array([status == highspy.HighsBasisStatus.kBasic for status in statuses])
    movable = ~basic & (low < high)
    bound = movable & (np.abs(np.array(duals)) > DUAL)
    at = np.where(np.isinf(low), high, low)
    return np.flatnonzero(bound).astype(np.int32), at[bound], bool((movable & ~bound).any())
