"""The compact program of UniSched's Selector by OR-Tools: SCIP in whole numbers, GLOP relaxed.

There to check `evenshare_core.formulations.selector_lp`; one thread, no limit of time.
"""

from __future__ import annotations

import numpy as np

from evenshare_core.deadlines.compact import CompactProgram
from evenshare_core.formulations import native
from evenshare_core.formulations.problems import SolverError
from evenshare_core.units import REWARD_MICRO
from evenshare_research.formulations.selector_optimum import CompactOptimum

pywraplp = native.ortools("ortools.linear_solver.pywraplp")


def optimum_by_ortools(program: CompactProgram, *, whole: bool) -> CompactOptimum:
    """Maximise the reward of columns under the rows; `whole`: each is taken or not.

    Raises:
        SolverError: the status is anything but optimal.
    """
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
    return CompactOptimum.of(program, [share.solution_value() for share in shares], whole=whole)
