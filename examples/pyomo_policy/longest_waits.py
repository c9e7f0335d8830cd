"""Longest waits: the waiting jobs that start have the most GPU-seconds of waiting together.

A Pyomo model, solved by HiGHS. With x_jt = 1 if job j starts on GPU type t:

    max  sum_jt g_j a_j x_jt   s.t.  sum_t x_jt <= 1,  sum_j g_j x_jt <= F_t,  x_jt in {0, 1}

g_j: GPUs of the job; a_j: seconds since its submission, plus 1; F_t: free GPUs of the type. The
model has no nodes and no limits of tenants: its jobs are placed first, and others that fit follow.
"""

from importlib.metadata import version
from typing import Any

import pyomo.environ as pyo
from msgspec.structs import replace
from pyomo.contrib.appsi.solvers.highs import Highs

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision, Solve
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.shared import ordered
from evenshare_core.units import SECOND_US

# Equal snapshots must give equal decisions: one thread, a fixed seed, no gap and no time limit.
EXACT = {"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}


class LongestWaits(Policy):
    name = "longest_waits"
    version = f"1 pyomo {version('pyomo')} highs {version('highspy')}"
    title = "Longest waits"
    promise = "The jobs that start have waited the most GPU-seconds together."
    suits = "An example of a policy that is a program."
    order_text = "Jobs that the program starts first; then all others, in the order of submission."
    promised = frozenset({Property.PARETO})

    def decide(self, snapshot: Snapshot) -> Decision:
        rule, solve = _plan(snapshot)
        return replace(ordered.decide_in_order(snapshot, rule), solve=solve)

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        return ordered.order_of(snapshot, _plan(snapshot)[0])


def _plan(snapshot: Snapshot) -> tuple[ordered.QueueRule, Solve | None]:
    """Return the order of jobs, and the solver's result, or None if no job waits."""
    jobs = [one for one in ordered.queued_jobs(snapshot) if one.lease is None]
    jobs.sort(key=ordered.by_arrival)
    free = capacity_by_type(snapshot.nodes)
    for lease in snapshot.leases:
        free[lease.gpu_type] = max(0, free.get(lease.gpu_type, 0) - lease.gpus)
    pairs = [(j, t) for j, one in enumerate(jobs) for t in sorted({*one.gpu_types} & {*free})]
    if not pairs:
        return ordered.QueueRule(order=ordered.by_arrival), None
    gpus = [one.job.gpus for one in jobs]
    waits = [(snapshot.at_us - one.job.submitted_us) / SECOND_US + 1 for one in jobs]
    model = _model(gpus, {(j, t): gpus[j] * waits[j] for j, t in pairs}, free)
    solver = Highs()
    solver.highs_options = {**EXACT, "output_flag": False}
    solver.solve(model)  # raises an error if there is no optimum
    starts = {jobs[j].job.id for j, t in pairs if model.x[j, t].value > 1 / 2}
    rule = ordered.QueueRule(order=lambda one: (one.job.id not in starts, *ordered.by_arrival(one)))
    return rule, Solve("pyomo highs", "optimal", round(pyo.value(model.waits), 6))


def _model(gpus: list[int], waits: dict[tuple[int, str], float], free: dict[str, int]) -> Any:
    model, pairs = pyo.ConcreteModel(), list(waits)
    model.x = pyo.Var(pairs, within=pyo.Binary)
    model.waits = pyo.Objective(expr=pyo.sum_product(waits, model.x), sense=pyo.maximize)
    model.rows = pyo.ConstraintList()
    for job in dict(pairs):  # at most one type per job
        model.rows.add(sum(model.x[j, t] for j, t in pairs if j == job) <= 1)
    for kind in sorted({t for _, t in pairs}):  # the free GPUs of a type
        model.rows.add(sum(gpus[j] * model.x[j, t] for j, t in pairs if t == kind) <= free[kind])
    return model


POLICY = LongestWaits()
