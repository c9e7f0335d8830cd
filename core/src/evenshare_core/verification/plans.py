"""Checks of a plan that another version of a solver or a policy made.

A program may have several optimal solutions, and the solver's version decides which one it returns.
So bytes are not compared. The plan must satisfy the invariants
(`evenshare_core.domain.invariants`), its fractions must fit into the pool, and its objective must
be as good. Not every program is solved to optimality. A plan that is only feasible, or within a
stated gap of the optimum, may earn less than the one computed here. This is reported as a remark.
"""

import re
from collections.abc import Iterator
from math import isclose

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision, Solve
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import with_outcomes
from evenshare_core.verification.differences import differences

# Solvers of linear programs stop within 1e-7; sums of thousands of terms are less accurate.
TOLERANCE = 1e-6
# A solver's statement of how far a plan may be below the optimum: "solved, gap 7.2 %", "at most
# 7.25% below".
_BELOW = re.compile(r"\b(?:gap|at most) (\d+(?:\.\d+)?) ?%")
_ROUNDED = 0.1  # a stated gap may be rounded by this, in percent


def plan_breaks(snapshot: Snapshot, stored: Decision, again: Decision | None) -> Iterator[str]:
    """Yield the violations that can be found in a decision without replaying it byte for byte.

    `again` is the same policy's decision here; None if it could not be computed. The stored
    decision must reach the objective of `again`, and agree with it in everything that no solver
    affects.
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
    # These follow from the picks without a solver: rho after the round, and the next prices.
    for place in differences(stored, with_outcomes(snapshot, stored)):
        yield f"does not follow from the plan: {place}"
    if again is not None:
        yield from _against(stored, again)


def plan_remarks(stored: Decision, again: Decision | None) -> Iterator[str]:
    """Yield a remark if the objective differs from the one computed here by a permitted amount."""
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
        # No plan earns more than the optimum, so this plan may be lower only by its own gap.
        lower = left if there < here else made
        if not _below(lower) or there < here * (1 - _below(lower)):
            yield f"the objective is {there:.9g} there, {here:.9g} here"


def _below(solve: Solve) -> float:
    """Return the fraction by which a plan may be below the optimum, by the solver; default 0."""
    match = _BELOW.search(_how(solve))
    return min(1.0, (float(match[1]) + _ROUNDED) / 100) if match else 0.0


def _how(solve: Solve) -> str:
    return f"{solve.status}: {solve.fallback}" if solve.fallback else solve.status


def _is_near(there: float, here: float) -> bool:
    return isclose(there, here, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
