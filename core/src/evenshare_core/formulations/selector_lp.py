"""The linear relaxation of the compact program by OR-Tools' GLOP, with lazy rows.

Only a few of the hundreds of rows bind. So the program starts with some rows, and those that its
solution violates are added. It ends when no row is violated, or at its limit of work. Any duals
prove a bound, so an early end only makes the bound less tight.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.compact import PRICE_SCALE, CompactProgram
from evenshare_core.formulations.lp import ConstraintRows, LinearProgram
from evenshare_core.formulations.ortools_programs import GlopProgram
from evenshare_core.formulations.problems import SolverError
from evenshare_core.units import REWARD_MICRO

SOLVES = 24  # maximum number of solves, each with more rows
ADDED = 16  # maximum number of rows that are added after a solve
FIRST_HORIZONS = 6
# points that the largest column costs, so that smaller ones win ties
TIE = 1e-5
VIOLATED = 1e-7  # a row violated by less than this fraction of its capacity counts as met
ITERATIONS = 20_000  # simplex iterations of each solve


@dataclass(frozen=True)
class RelaxedPlan:
    """Shares of columns, and prices of rows that prove a bound.

    `is_complete`: the shares are the optimum of the relaxation.
    """

    shares: NDArray[np.float64]
    prices: tuple[tuple[int, int], ...]
    is_complete: bool


def relax(
    program: CompactProgram,
    first: tuple[tuple[int, int], ...] = (),
    *,
    iterations: int = ITERATIONS,
    former: bool = False,
) -> RelaxedPlan:
    """Solve the linear relaxation; start with the rows of `first`, the prices of an earlier plan.

    `iterations` limits the simplex steps of each solve, and is 0 to solve nothing. At the limit,
    the last solution is returned. `former`: solve by HiGHS with a warm start, as former versions of
    policies did, with a limit for all solves together.
    """
    active = _first_rows(program, first)
    shares = np.zeros(len(program.columns))
    prices: tuple[tuple[int, int], ...] = ()
    if not program.columns or (iterations == 0 and not former):
        return RelaxedPlan(shares, prices, is_complete=not program.columns)
    usage = {row: program.usage(program.rows[row]) for row in range(len(program.rows))}
    jobs, linear = _linear(program, usage, active, FormerProgram if former else GlopProgram)
    left = iterations
    for _ in range(SOLVES):
        linear.limit(left)
        try:
            shares, duals = linear.solve()
        except SolverError:
            return RelaxedPlan(shares, prices, is_complete=False)
        left -= linear.counted_steps()
        prices = _prices(active, duals[jobs:])
        excess = [
            (float((use * shares).sum()) - program.rows[row].units) / (1 + program.rows[row].units)
            for row, use in usage.items()
        ]
        worst = np.argsort(excess)[::-1][:ADDED].tolist()
        violated = [row for row in worst if excess[row] > VIOLATED]
        if not violated:
            return RelaxedPlan(shares, prices, is_complete=True)
        if left <= 0:
            break
        rows = ConstraintRows()
        for row in violated:
            _add(rows, program, usage, row)
        linear.add(rows)
        active += violated
    return RelaxedPlan(shares, prices, is_complete=False)


def _first_rows(program: CompactProgram, first: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the rows to start with: those that had a price, and those of some horizons."""
    rows = program.rows
    horizons = sorted({row.horizon for row in rows})
    places = np.linspace(0, len(horizons) - 1, FIRST_HORIZONS).round().astype(int)
    begin = {horizons[place] for place in places.tolist()}
    chosen = {row for row, _ in first if row < len(rows)}
    chosen |= {number for number, row in enumerate(rows) if row.horizon in begin}
    return sorted(chosen)


class FormerProgram(LinearProgram):
    """The program in HiGHS."""

    def limit(self, steps: int) -> None:
        self.option("simplex_iteration_limit", steps)

    def counted_steps(self) -> int:
        """Return the steps of the last solve that count towards the limit of all solves."""
        return max(1, self.highs.getInfo().simplex_iteration_count)


def _linear(
    program: CompactProgram,
    usage: dict[int, NDArray[np.int64]],
    active: list[int],
    solver: type[FormerProgram | GlopProgram],
) -> tuple[int, FormerProgram | GlopProgram]:
    """Return the number of job rows (one column per job at most), and the program."""
    rows = ConstraintRows()
    order = np.argsort(program.jobs, kind="stable")
    numbers, begins = np.unique(program.jobs[order], return_index=True)
    for columns in np.split(order, begins[1:]):
        rows.add(columns, np.ones(len(columns)), -np.inf, 1.0)
    for row in active:
        _add(rows, program, usage, row)
    upper = np.ones(len(program.columns))
    sizes = np.array([column.gpu_leases for column in program.columns], dtype=np.float64)
    rewards = program.rewards / REWARD_MICRO - TIE * sizes / max(1.0, sizes.max())
    return len(numbers), solver(rewards, upper, rows)


def _add(
    rows: ConstraintRows, program: CompactProgram, usage: dict[int, NDArray[np.int64]], row: int
) -> None:
    columns = np.flatnonzero(usage[row])
    rows.add(columns, usage[row][columns].astype(float), -np.inf, float(program.rows[row].units))


def _prices(active: list[int], duals: NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """Return positive duals as whole numbers of millionths of a point x PRICE_SCALE."""
    whole = np.rint(np.maximum(0.0, duals) * REWARD_MICRO * PRICE_SCALE).astype(np.int64)
    pairs = zip(active, whole.tolist(), strict=True)
    return tuple((row, price) for row, price in pairs if price)
