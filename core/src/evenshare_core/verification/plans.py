"""What can be said of a plan that another version of a solver or a policy made.

A program may have several best answers, and which one comes out is a matter of the solver's
version. Then bytes are not compared, but whether the plan is one: whole rules hold
(`evenshare_core.domain.invariants`), its fractions fit into the pool, and its objective is as good.

Not every program is solved to its end. A plan that is said to be within a gap of the best one, or
to be feasible and no more, may well earn less than the one that is made here: then that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isclose

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision, Solve
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import with_outcomes
from evenshare_core.verification.differences import differences

# Solvers of linear programs stop within 1e-7; sums of thousands of terms lose some of it.
TOLERANCE = 1e-6
# How a solve says that a plan may be below the best: "solved, gap 7.2 %", "at most 7.25% below".
_BELOW = re.compile(r"\b(?:gap|at most) (\d+(?:\.\d+)?) ?%")
_ROUNDED = 0.1  # percent, the last digit of it


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
    # What follows from the picks needs no solver: rho after the round, and the next prices.
    for place in differences(stored, with_outcomes(snapshot, stored)):
        yield f"does not follow from the plan: {place}"
    if again is not None:
        yield from _against(stored, again)


def plan_remarks(stored: Decision, again: Decision | None) -> Iterator[str]:
    """Say where a plan earns less than the one made here, or more, and may."""
    there, here = stored.solve, again.solve if again else None
    if there is None or here is None or there.objective is None or here.objective is None:
        return
    if not _is_near(there.objective, here.objective) and (_below(there) or _below(here)):
        yield (
            f"the objective is {there.objective:.9g} there ({_how(there)}),"
            f" {here.objective:.9g} here ({_how(here)})"
        )


def _against(stored: Decision, again: Decision) -> Iterator[str]:
    if stored.service != again.service:
        yield "the sums of fairness, which no solver touches, differ"
    left, made = stored.solve or Solve("", ""), again.solve or Solve("", "")
    there, here = left.objective, made.objective
    if (there is None) != (here is None):
        yield f"the objective is {there} there, {here} here"
    elif there is not None and here is not None and not _is_near(there, here):
        # No plan earns more than the best one: what is below it may be by its own gap alone.
        lower = left if there < here else made
        if not _below(lower) or there < here * (1 - _below(lower)):
            yield f"the objective is {there:.9g} there, {here:.9g} here"


def _below(solve: Solve) -> float:
    """By what part of the best a plan may be below it, as it says; 0: not at all."""
    match = _BELOW.search(_how(solve))
    return min(1.0, (float(match[1]) + _ROUNDED) / 100) if match else 0.0


def _how(solve: Solve) -> str:
    return f"{solve.status}: {solve.fallback}" if solve.fallback else solve.status


def _is_near(there: float, here: float) -> bool:
    return isclose(there, here, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
