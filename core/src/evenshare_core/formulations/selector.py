"""UniSched's Selector: plans one cycle within a limit of work, with a proven gap to the optimum.

The linear relaxation of the compact program gives shares of columns, and prices. Columns with a
share of 1 are placed on concrete slots first, then those with a fractional share. Then all other
columns that fit are placed, those with the most reward above their price first.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from evenshare_core.deadlines.compact import CompactProgram, compact_program
from evenshare_core.deadlines.exchange import shortest_now
from evenshare_core.deadlines.model import SelectorProblem
from evenshare_core.deadlines.plans import JobLeases, SelectorPlan
from evenshare_core.deadlines.repair import Repair
from evenshare_core.deadlines.reserve import SlotReservations, advance, improve, lay
from evenshare_core.formulations.selector_lp import ITERATIONS, RelaxedPlan, relax
from evenshare_core.formulations.selector_whole import choose_slots

WHOLE = 1 - 1e-6  # larger shares count as 1
ENOUGH = 200  # a plan within 1 / `ENOUGH` of the bound is not improved
EFFORT = 50_000  # maximum number of checks of (14) to improve a plan
# if all columns' deadlines sum to at most this, slots are solved too
FEW_SLOTS = 1500
EFFORT_OF_NODE = 250  # effort per node of that program's search tree
SOME = 1e-6  # smaller shares count as 0


def select(
    problem: SelectorProblem,
    last: SelectorPlan | None = None,
    *,
    iterations: int = ITERATIONS,
    effort: int = EFFORT,
    first: Collection[int] = (),
    former: bool = False,
) -> SelectorPlan:
    """Return a feasible plan of one cycle, with a bound that no plan exceeds.

    - `last`: the plan of the previous cycle, whose prices select the solver's first rows. If the
      solver reaches its limit before the optimum, the leases of `last` are kept if they fit, and
      only the rest is planned. A plan under which a job loses its reward of `last` is used only if
      it earns more.
    - `iterations`: the limit of each linear program, in steps of the simplex method; 0 solves
      nothing.
    - `effort`: the limit of the search that improves a plan below its bound.
    - `first`: jobs that may take slot 0 from jobs with more work left (`shortest_now`).
    - `former`: solve by HiGHS, as former versions of policies did.

    The same input gives the same plan.

    Raises:
        ValueError: the limit is negative.
        SolverError: the solver refuses a value.
    """
    if iterations < 0:
        raise ValueError("iterations: must be at least 0")
    program = compact_program(problem)
    relaxed = relax(program, last.prices if last else (), iterations=iterations, former=former)
    prices = relaxed.prices
    bound = program.bound_micro(prices)
    best = _best(program, relaxed, last, effort, former=former)
    if last is not None:
        best = _as_promised(program, best, _kept(program, last.jobs), relaxed)
    shortest = sorted(
        range(len(program.columns)), key=lambda number: program.columns[number].gpu_leases
    )
    improve(best, shortest)
    advance(best)
    if first:
        shortest_now(best, first)
    return SelectorPlan(
        best.plan(),
        sum(program.columns[number].reward_micro for number in best.slots),
        bound,
        prices,
        relaxed.is_complete,
    )


def _best(
    program: CompactProgram,
    relaxed: RelaxedPlan,
    last: SelectorPlan | None,
    effort: int,
    *,
    former: bool,
) -> SlotReservations:
    values = program.priced(relaxed.prices)
    shares = relaxed.shares
    sizes = np.array([column.gpu_leases for column in program.columns], dtype=np.int64)
    order = np.lexsort((sizes, -values)).tolist()
    kept = [] if relaxed.is_complete or last is None else _kept(program, last.jobs)
    jobs = {program.columns[number].job for number in kept}
    whole = [
        number
        for number in order
        if shares[number] >= WHOLE and program.columns[number].job not in jobs
    ]
    some = [number for number in order if SOME < shares[number] < WHOLE]
    some.sort(key=lambda number: -shares[number])
    most = program.bound_micro(relaxed.prices)
    best = _laid(program, kept + whole, some + order)
    if best.reward_micro >= most - most // ENOUGH:
        return best
    Repair(best, effort).run(order, most)
    variables = sum(column.deadline for column in program.columns)
    if (
        not relaxed.is_complete
        or variables > FEW_SLOTS
        or best.reward_micro >= most - most // ENOUGH
    ):
        return best
    exact = SlotReservations(program)
    for number, slots in choose_slots(program, effort // EFFORT_OF_NODE, former=former).items():
        exact.reserve(number, slots)
    return max(best, exact, key=lambda one: one.reward_micro)


def _laid(program: CompactProgram, chosen: Sequence[int], order: Sequence[int]) -> SlotReservations:
    """Lay out the chosen columns, and insert the rest in order."""
    reservations = SlotReservations(program)
    lay(reservations, chosen)
    improve(reservations, order)
    return reservations


def _kept(program: CompactProgram, jobs: Mapping[int, JobLeases]) -> list[int]:
    """Return the last plan's columns: the same option per job, and the same step if possible."""
    places = {job.id: place for place, job in enumerate(program.problem.jobs)}
    rows = {places[row.job]: row for row in jobs.values() if row.job in places}
    kept: dict[int, int] = {}
    for number, column in enumerate(program.columns):
        row = rows.get(column.job)
        if row is None or (row.option.cells, row.option.one_node) != (
            column.option.cells,
            column.option.one_node,
        ):
            continue
        if column.job not in kept or column.step == row.step:
            kept[column.job] = number
    return list(kept.values())


def _as_promised(
    program: CompactProgram, best: SlotReservations, kept: Sequence[int], relaxed: RelaxedPlan
) -> SlotReservations:
    """Return a plan that keeps the rewards of the last plan, if it earns as much as `best`."""
    columns = program.columns
    if not _broken(program, best, kept):
        return best
    order = sorted(
        range(len(columns)),
        key=lambda number: (-relaxed.shares[number], columns[number].gpu_leases),
    )
    again = _laid(program, kept, order)
    if again.reward_micro < best.reward_micro or _broken(program, again, kept):
        return best
    return again


def _broken(program: CompactProgram, made: SlotReservations, kept: Sequence[int]) -> bool:
    """Return whether a job earns less than with its column in the last plan."""
    for number in kept:
        column = program.columns[number]
        given = made.column_of.get(column.job)
        if given is None or program.columns[given].reward_micro < column.reward_micro:
            return True
    return False
