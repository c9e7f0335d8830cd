"""What can be said of a plan that another version of a solver or a policy made.

A program may have several best answers, and which one comes out is a matter of the solver's
version. Then bytes are not compared, but whether the plan is one: whole rules hold
(`evenshare_core.domain.invariants`), its fractions fit into the pool, and its objective is as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.base import with_outcomes
from evenshare_core.verification.differences import differences

# Solvers of linear programs stop within 1e-7; sums of thousands of terms lose some of it.
TOLERANCE = 1e-6


def plan_breaks(snapshot: Snapshot, stored: Decision, again: Decision | None) -> Iterator[str]:
    """Tell what is wrong with a decision taken for itself.

    `again`: what the same policy decides here, whose objective it must reach and with which it
    shares all that no solver touches; None where that could not be decided.
    """
    for broken in violations(snapshot, stored):
        yield f"{broken.rule}: {broken.detail}"
    capacity = capacity_by_type(snapshot.nodes)
    used: dict[str, float] = {}
    for ideal in stored.ideals:
        used[ideal.gpu_type] = used.get(ideal.gpu_type, 0.0) + ideal.gpus
        if ideal.gpus < -TOLERANCE:
            yield f"tenant {ideal.tenant} has {ideal.gpus} GPUs of {ideal.gpu_type}"
    for gpu_type, gpus in sorted(used.items()):
        if gpus > capacity[gpu_type] + TOLERANCE * max(1, capacity[gpu_type]):
            yield f"ideals share out {gpus} {gpu_type}, there are {capacity[gpu_type]}"
    if snapshot.policy in registry.POLICIES:
        # What follows from the picks needs no solver: rho after the round, and the next prices.
        for place in differences(stored, with_outcomes(snapshot, stored)):
            yield f"does not follow from the plan: {place}"
    if again is not None:
        yield from _against(stored, again)


def _against(stored: Decision, again: Decision) -> Iterator[str]:
    if stored.service != again.service:
        yield "the sums of fairness, which no solver touches, differ"
    there = stored.solve.objective if stored.solve else None
    here = again.solve.objective if again.solve else None
    if (there is None) != (here is None):
        yield f"the objective is {there} there, {here} here"
    elif there is not None and here is not None and not _is_near(there, here):
        yield f"the objective is {there:.9g} there, {here:.9g} here"


def _is_near(there: float, here: float) -> bool:
    return isclose(there, here, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
