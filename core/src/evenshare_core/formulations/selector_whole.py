"""UniSched's Selector as a 0-1 program: by CP-SAT, or by HiGHS (one thread, a fixed seed)."""

import highspy
import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.compact import CompactProgram
from evenshare_core.deadlines.model import Counts
from evenshare_core.fairness.solver import SilentHighs
from evenshare_core.formulations.lp import ConstraintRows, pass_program
from evenshare_core.formulations.ortools_programs import choose_whole
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.units import REWARD_MICRO

NODES_OF_WORK = 200  # nodes of HiGHS for which CP-SAT has a unit of work, about a second
OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
}


def solve_whole(
    rewards: Array, rows: ConstraintRows, *, nodes: int | None = None, seconds: float | None = None
) -> tuple[NDArray[np.bool_] | None, float, bool]:
    """Maximise `rewards . x` under the rows, with each x either 0 or 1.

    Return the best x found (`None` without one), an upper bound, and whether x is optimal.
    `nodes` limits the nodes of the search tree. `seconds` limits the time; it is only for
    benchmarks, because the result then depends on the machine.

    Raises:
        SolverError: HiGHS ends without an optimum before it reaches a limit.
    """
    highs = SilentHighs()
    pass_program(highs, OPTIONS, rewards, np.ones(len(rewards)), rows, is_whole=True)
    if nodes is not None:
        highs.setOptionValue("mip_max_nodes", nodes)
    if seconds is not None:
        highs.setOptionValue("time_limit", seconds)
    highs.run()
    status = highs.getModelStatus()
    is_optimal = status == highspy.HighsModelStatus.kOptimal
    limits = (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kSolutionLimit)
    if not is_optimal and status not in limits:
        raise SolverError(f"HiGHS ended with {highs.modelStatusToString(status)!r}")
    solution, info = highs.getSolution(), highs.getInfo()
    taken = np.array(solution.col_value) > 1 / 2 if solution.value_valid else None
    return taken, float(info.mip_dual_bound), is_optimal


def choose_slots(program: CompactProgram, nodes: int, *, former: bool) -> dict[int, list[int]]:
    """Return slots by column: the paper's program with a variable per slot.

    Dominated options are left out. A best-effort lease has slot 0. `nodes` limits the work. CP-SAT
    solves the program, or, if `former`, HiGHS within this number of nodes.
    """
    built = _SlotProgram(program)
    for job in np.unique(program.jobs):
        built.add_job(np.flatnonzero(program.jobs == job).tolist())
    built.close()
    rewards = np.array(built.rewards, dtype=np.float64)
    if former:
        best, _, _ = solve_whole(rewards / REWARD_MICRO, built.rows, nodes=nodes)
    else:
        best, _, _ = choose_whole(rewards, built.rows, work=nodes / NODES_OF_WORK)
    if best is None:
        return {}
    slots: dict[int, list[int]] = {
        number: [] for number, place in built.chosen.items() if best[place]
    }
    for number, slot, place in built.slots:
        if number in slots and best[place]:
            slots[number].append(slot)
    return {number: taken[: program.columns[number].leases] for number, taken in slots.items()}


class _SlotProgram:
    """Variables: a column is taken; a column runs in a slot. Rows: (12), and (14) per slot."""

    def __init__(self, program: CompactProgram) -> None:
        self.program = program
        self.rewards: list[int] = []
        self.rows = ConstraintRows()
        self.chosen: dict[int, int] = {}
        self.slots: list[tuple[int, int, int]] = []  # column, slot, index of the variable

    def add_job(self, numbers: list[int]) -> None:
        places = [self._place(self.program.columns[number].reward_micro) for number in numbers]
        self.chosen |= dict(zip(numbers, places, strict=True))
        self.rows.add(np.array(places), np.ones(len(places)), -np.inf, 1.0)
        for number, chosen in zip(numbers, places, strict=True):
            column = self.program.columns[number]
            runs = [self._place(0) for _ in range(column.deadline - column.ready)]
            self.slots += [(number, slot, place) for slot, place in enumerate(runs, column.ready)]
            for place in runs:
                self.rows.add(np.array([place, chosen]), np.array([1.0, -1.0]), -np.inf, 0.0)
            values = np.array([*np.ones(len(runs)), -float(column.leases)])
            self.rows.add(np.array([*runs, chosen]), values, 0.0, np.inf)

    def _place(self, reward_micro: int) -> int:
        self.rewards.append(reward_micro)
        return len(self.rewards) - 1

    def close(self) -> None:
        """Add (14) for each slot and level; best-effort leases share slot 0."""
        problem, columns = self.program.problem, self.program.columns
        later = [row for row in self.slots if not columns[row[0]].is_now]
        now = [
            row
            for row in self.slots
            if columns[row[0]].is_now or (problem.is_slo_cycle and row[1] == 0)
        ]
        self._capacity(now, problem.now_units)
        for slot, free in enumerate(problem.lease_units):
            self._capacity([row for row in later if row[1] == slot], free)

    def _capacity(self, runs: list[tuple[int, int, int]], free: Counts) -> None:
        if not runs:
            return
        places = np.array([place for _, _, place in runs])
        units = self.program.units[[number for number, _, _ in runs]]
        for level, most in enumerate(free.tolist()):
            self.rows.add(places, units[:, level].astype(float), -np.inf, float(most))
