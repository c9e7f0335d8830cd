"""Solve the offline optimum as printed in problem (3), slot by slot, in Pyomo with HiGHS.

Each choice of a job has variables for the workers, the PSs and the home on each server. The model
is slow; it is meant to be read and to check the other formulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

import pyomo.environ as pyo

from evenshare_core.units import CREDIT_MICRO
from evenshare_research.formulations.market_optimum import (
    MarketOptimum,
    PlanChoice,
    PlannedJob,
    choices,
    values_micro,
)
from evenshare_research.market.model import MarketJob, MarketPool

from .pyomo_solver import solve


def solve_by_pyomo(pool: MarketPool, jobs: Sequence[MarketJob], last: int) -> MarketOptimum:
    """Maximise the sum of f over schedules that end by slot `last`.

    Raises:
        SolverError: the status is not optimal.
    """
    model = _model(pool, jobs, last)
    if not model.options:
        return MarketOptimum(0, 0, {})  # HiGHS has no status for an empty model
    solve(model)
    planned, value = {}, 0
    for number, choice in model.options.items():
        if round(model.x[number].value) == 1:
            planned[model.job_of[number].id] = PlannedJob(
                choice.start,
                choice.end,
                _read(model, model.y, number),
                _read(model, model.z, number),
            )
            value += choice.value_micro
    return MarketOptimum(value, value, planned)


class StartedChoice(NamedTuple):
    """A possible schedule of a job, with its slots and its value f."""

    choice: PlanChoice
    start: int
    end: int
    value_micro: int

    @property
    def workers(self) -> int:
        return self.choice.workers

    @property
    def centralised(self) -> bool:
        return self.choice.centralised


def _starts(pool: MarketPool, job: MarketJob, last: int) -> Iterator[StartedChoice]:
    values = values_micro(job, last)
    for choice in choices(pool, job, last):
        for start in range(ceil(job.arrival) + 1, last - choice.slots + 2):
            end = start + choice.slots - 1
            if values[end]:
                yield StartedChoice(choice, start, end, values[end])


def _model(pool: MarketPool, jobs: Sequence[MarketJob], last: int) -> pyo.ConcreteModel:
    """Build variables x (choice), y (workers), z (PSs), home by choice and server; rows of (3)."""
    model = pyo.ConcreteModel()
    rows = [(job, start) for job in jobs for start in _starts(pool, job, last)]
    model.options = dict(enumerate(start for _, start in rows))
    model.job_of = dict(enumerate(job for job, _ in rows))
    model.c = pyo.RangeSet(0, len(rows) - 1)
    model.s = pyo.RangeSet(0, len(pool.servers) - 1)
    model.t = pyo.RangeSet(1, last)
    model.x = pyo.Var(model.c, within=pyo.Binary)
    model.y = pyo.Var(model.c, model.s, within=pyo.NonNegativeIntegers)
    model.z = pyo.Var(model.c, model.s, within=pyo.NonNegativeIntegers)
    model.home = pyo.Var(model.c, model.s, within=pyo.Binary)
    model.once = pyo.ConstraintList()
    for job in {job.id: None for job, _ in rows}:
        model.once.add(pyo.quicksum(model.x[c] for c in model.c if model.job_of[c].id == job) <= 1)
    model.workers = pyo.Constraint(
        model.c,
        rule=lambda model, c: (
            pyo.quicksum(model.y[c, s] for s in model.s) == model.options[c].workers * model.x[c]
        ),
    )
    model.capacity = pyo.ConstraintList()
    for t in model.t:
        running = [c for c in model.c if model.options[c].start <= t <= model.options[c].end]
        for s, server in enumerate(pool.servers):
            if running:
                model.capacity.add(
                    pyo.quicksum(model.y[c, s] for c in running) <= server.workers
                )  # (3c)
                model.capacity.add(
                    pyo.quicksum(model.z[c, s] for c in running) <= server.ps
                )  # (3d)
    _place(model, pool)
    model.objective = pyo.Objective(
        expr=pyo.quicksum(
            model.options[c].value_micro / CREDIT_MICRO * model.x[c] for c in model.c
        ),
        sense=pyo.maximize,
    )
    return model


def _place(model: pyo.ConcreteModel, pool: MarketPool) -> None:
    """Add (3g), (3i), (3j): the PSs are on one server, as are a centralised job's workers."""
    model.places = pyo.ConstraintList()
    for c in model.c:
        choice, x = model.options[c], model.x[c]
        has_home = bool(pool.ps) or choice.centralised
        model.places.add(pyo.quicksum(model.home[c, s] for s in model.s) == (x if has_home else 0))
        for s, server in enumerate(pool.servers):
            home, z, y = model.home[c, s], model.z[c, s], model.y[c, s]
            elsewhere = choice.workers * x - y
            model.places.add(z <= server.ps * home)
            if pool.ps:
                model.places.add(z >= home)
            if choice.centralised:
                model.places.add(elsewhere <= choice.workers * (1 - home))
            elif pool.ps:
                slack = choice.workers * pool.worker_bandwidth * (1 - home)
                model.places.add(elsewhere * pool.worker_bandwidth <= z * pool.ps_bandwidth + slack)


def _read(model: pyo.ConcreteModel, variable: Any, number: int) -> dict[int, int]:
    return {s: count for s in model.s if (count := round(variable[number, s].value))}
