"""The offline optimum by OR-Tools' CP-SAT: jobs are intervals, servers cumulative resources.

The same input gives the same plan: the solver has one thread and a fixed seed. Its limit is in
deterministic units of work, not in seconds.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

from evenshare_core.formulations import native
from evenshare_core.formulations.problems import SolverError
from evenshare_research.formulations.market_optimum import (
    MarketOptimum,
    PlannedJob,
    choices,
    values_micro,
)
from evenshare_research.market.model import MarketJob, MarketPool

cp_model = native.ortools("ortools.sat.python.cp_model")


def solve_by_ortools(
    pool: MarketPool, jobs: Sequence[MarketJob], last: int, *, effort: float = 30.0
) -> MarketOptimum:
    """Maximise the sum of f over schedules that end by slot `last`.

    `effort`: the limit in CP-SAT's deterministic time, roughly seconds. If optimality is not proven
    by then, the bound is above the value, and no plan may be found (value 0).

    Raises:
        SolverError: the solver refuses the model.
    """
    model = cp_model.CpModel()
    plans = [_Plan(model, pool, job, last) for job in jobs]
    for server, row in enumerate(pool.servers):
        intervals = [plan.interval for plan in plans]
        model.AddCumulative(intervals, [plan.workers[server] for plan in plans], row.workers)
        if pool.ps:
            model.AddCumulative(intervals, [plan.ps[server] for plan in plans], row.ps)
    model.Maximize(sum(plan.value for plan in plans))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.Solve(model)
    if status == cp_model.UNKNOWN:
        return MarketOptimum(0, int(solver.BestObjectiveBound()), {})
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        raise SolverError(f"CP-SAT ended {solver.StatusName(status)}")
    planned = {plan.job.id: plan.read(solver) for plan in plans if solver.Value(plan.value)}
    value = sum(solver.Value(plan.value) for plan in plans)
    return MarketOptimum(value, int(solver.BestObjectiveBound()), planned)


class _Plan:
    """The variables of a job."""

    def __init__(self, model: Any, pool: MarketPool, job: MarketJob, last: int) -> None:
        self.job = job
        rows = list(choices(pool, job, last))
        values = values_micro(job, last)
        picks = [model.NewBoolVar("") for _ in rows]
        pairs = list(zip(picks, rows, strict=True))
        self.is_scheduled = model.NewBoolVar("")
        model.Add(sum(picks) == self.is_scheduled)
        count = sum(pick * choice.workers for pick, choice in pairs)
        is_central = sum(pick for pick, choice in pairs if choice.centralised)
        # A job that is not scheduled ends in slot 0, where its value is 0.
        self.begins = model.NewIntVar(0, last, "")
        self.ends = model.NewIntVar(0, last, "")
        self.value = model.NewIntVar(0, max(values), "")
        lasts = model.NewIntVar(0, last, "")
        model.Add(lasts == sum(pick * choice.slots for pick, choice in pairs))
        model.Add(self.begins >= ceil(job.arrival)).OnlyEnforceIf(self.is_scheduled)
        model.Add(self.ends == 0).OnlyEnforceIf(self.is_scheduled.Not())
        model.Add(self.begins + lasts == self.ends)
        model.AddElement(self.ends, values, self.value)
        self.interval = model.NewOptionalIntervalVar(
            self.begins, lasts, self.ends, self.is_scheduled, ""
        )
        self.workers = [model.NewIntVar(0, row.workers, "") for row in pool.servers]
        self.ps = [model.NewIntVar(0, row.ps, "") for row in pool.servers]
        model.Add(sum(self.workers) == count)
        self._place(model, pool, count, is_central)

    def _place(self, model: Any, pool: MarketPool, count: Any, is_central: Any) -> None:
        """Choose the home server of a centralised job's workers or a job's PSs (3g), (3i), (3j)."""
        homes = [model.NewBoolVar("") for _ in pool.servers]
        # With all-reduce, a distributed job has no home server.
        model.Add(sum(homes) == (self.is_scheduled if pool.ps else is_central))
        for server, home in enumerate(homes):
            elsewhere = count - self.workers[server]
            most = pool.workers
            model.Add(elsewhere <= most * (2 - home - is_central))
            if pool.ps:
                model.Add(self.ps[server] >= 1).OnlyEnforceIf(home)
                model.Add(self.ps[server] == 0).OnlyEnforceIf(home.Not())
                model.Add(
                    elsewhere * pool.worker_bandwidth <= self.ps[server] * pool.ps_bandwidth
                ).OnlyEnforceIf(home)

    def read(self, solver: Any) -> PlannedJob:
        workers, ps = (
            {server: count for server, var in enumerate(row) if (count := solver.Value(var))}
            for row in (self.workers, self.ps)
        )
        return PlannedJob(solver.Value(self.begins) + 1, solver.Value(self.ends), workers, ps)
