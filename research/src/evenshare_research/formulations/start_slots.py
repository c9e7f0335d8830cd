"""Starts of jobs in the slots of a window, chosen for the highest expected utility.

Source: J. W. Park et al., "3Sigma", EuroSys 2018, 4.3. Each job has a variable per possible start,
and takes at most one. In each slot, the expected use of all starts stays within the free GPUs.

    max  sum_jo  E[U_jo] x_jo      s.t.  sum_o x_jo <= 1,   sum_jo P(runs in t) k_j x_jo <= C_t

Utilities and uses are whole numbers. Two greedy plans are made first, and the better one is kept.
If every job gets its best option in this plan, it is optimal, and no program is solved. CP-SAT of
OR-Tools is limited by its work, not by time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations.lp import ConstraintRows
from evenshare_core.formulations.ortools_programs import choose_whole
from evenshare_core.formulations.selector_whole import solve_whole

WORK = 2.0  # the maximum work of a search, in about seconds
NODES = 200  # the maximum number of nodes that a search of HiGHS may visit
Slots = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StartJob:
    """A job that may start.

    `uses` and `utilities` have a number per slot. `uses`: the expected GPUs in use in the first
    slot from its start, in the second, and so on, in the units of `free`. `utilities`: the expected
    utility of a start in each slot, in whole numbers. If it is 0, the job cannot start in this
    slot. `gpu_types`: the types on which it may start.
    """

    id: int
    gpu_types: tuple[str, ...]
    uses: Slots
    utilities: Slots


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Starts as job -> (GPU type, slot), their expected utility, and an upper bound on any plan.

    `limit`: why the search stopped early, or empty if the plan is optimal.
    """

    starts: Mapping[int, tuple[str, int]]
    utility: int
    bound: int
    limit: str = ""


def plan_starts(
    jobs: Sequence[StartJob], free: Mapping[str, Slots], *, exact_jobs: int, former: bool = False
) -> StartPlan:
    """Return a plan of starts.

    There are two greedy plans: by the given order of jobs, and by utility per use. `free`: by GPU
    type, parts of GPUs in each slot. If there are at most `exact_jobs` jobs, the program is solved
    within `WORK`. If there are more, the better greedy plan is returned with its bound. `former`:
    HiGHS solves the program within `NODES` nodes, as in the policy's first version.

    Raises:
        SolverError: the solver refuses a value.
    """
    greedy = max(_greedy(jobs, free), _greedy(_small_first(jobs), free), key=_utility)
    bound = sum(int(job.utilities.max(initial=0)) for job in jobs)
    if greedy.utility == bound:
        return StartPlan(greedy.starts, greedy.utility, bound)
    if len(jobs) > exact_jobs:
        return StartPlan(greedy.starts, greedy.utility, bound, f"more than {exact_jobs} jobs")
    return _solved(jobs, free, greedy, bound, former=former)


class _Taken:
    """The starts of a plan so far, and the GPUs that are left free."""

    def __init__(self, free: Mapping[str, Slots]) -> None:
        self.free = {name: row.copy() for name, row in free.items()}
        self.starts: dict[int, tuple[str, int]] = {}
        self.utility = 0

    def take_best(self, job: StartJob) -> None:
        """Take the fitting option with the highest utility, on a tie the earliest slot."""
        for slot in np.argsort(-job.utilities, kind="stable").tolist():
            if job.utilities[slot] <= 0:
                return
            if any(self.take(job, gpu_type, slot) for gpu_type in job.gpu_types):
                return

    def take(self, job: StartJob, gpu_type: str, slot: int) -> bool:
        """Take an option if it fits."""
        left = self.free[gpu_type][slot:]
        uses = job.uses[: len(left)]
        if (uses > left).any():
            return False
        left -= uses
        self.starts[job.id] = (gpu_type, slot)
        self.utility += int(job.utilities[slot])
        return True


def _greedy(jobs: Iterable[StartJob], free: Mapping[str, Slots]) -> _Taken:
    taken = _Taken(free)
    for job in jobs:
        taken.take_best(job)
    return taken


def _small_first(jobs: Sequence[StartJob]) -> list[StartJob]:
    """Sort jobs by their highest utility per use in the window. Equal jobs keep their order."""

    def density(job: StartJob) -> float:
        return int(job.utilities.max(initial=0)) / max(1, int(job.uses.sum()))

    return sorted(jobs, key=density, reverse=True)


def _utility(taken: _Taken) -> int:
    return taken.utility


@dataclass(frozen=True, slots=True)
class _Column:
    job: StartJob
    gpu_type: str
    slot: int


def _solved(
    jobs: Sequence[StartJob], free: Mapping[str, Slots], greedy: _Taken, most: int, *, former: bool
) -> StartPlan:
    columns = [
        _Column(job, gpu_type, slot)
        for job in jobs
        for gpu_type in job.gpu_types
        for slot in np.flatnonzero(job.utilities > 0).tolist()
    ]
    rows, utilities = _rows(columns, free), [int(one.job.utilities[one.slot]) for one in columns]
    scale, limit = 1, "limit of work"
    if former:
        scale, limit = max(int(job.utilities.max(initial=1)) for job in jobs), f"{NODES} nodes"
        rewards = np.array([utility / scale for utility in utilities])
        chosen, above, is_optimal = solve_whole(rewards, rows, nodes=NODES)
    else:
        rewards = np.array(utilities, dtype=np.float64)
        chosen, above, is_optimal = choose_whole(rewards, rows, work=WORK)
    bound = min(most, ceil(above * scale))
    exact = _Taken(free)
    taken = [] if chosen is None else np.flatnonzero(chosen).tolist()
    for number in taken:
        exact.take(columns[number].job, columns[number].gpu_type, columns[number].slot)
    best = exact if exact.utility > greedy.utility else greedy
    if is_optimal:
        return StartPlan(best.starts, best.utility, best.utility)
    return StartPlan(best.starts, best.utility, max(bound, best.utility), limit)


def _rows(columns: Sequence[_Column], free: Mapping[str, Slots]) -> ConstraintRows:
    rows = ConstraintRows()
    by_job: dict[int, list[int]] = {}
    by_type: dict[str, list[int]] = {}
    for number, one in enumerate(columns):
        by_job.setdefault(one.job.id, []).append(number)
        by_type.setdefault(one.gpu_type, []).append(number)
    for numbers in by_job.values():  # at most one option per job
        rows.add(np.array(numbers), np.ones(len(numbers)), -np.inf, 1.0)
    for gpu_type, numbers in by_type.items():  # the expected use is within the free GPUs
        left = free[gpu_type]
        for slot in range(len(left)):
            there = [number for number in numbers if columns[number].slot <= slot]
            if there:
                uses = [float(columns[one].job.uses[slot - columns[one].slot]) for one in there]
                rows.add(np.array(there), np.array(uses), -np.inf, float(left[slot]))
    return rows
