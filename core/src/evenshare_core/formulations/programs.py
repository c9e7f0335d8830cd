"""The linear programs that backends solve, as data, and the backends' protocol.

Every program is maximised over shares x >= 0 with `sum_l x_lj <= m_j` for every type j, and
`sum_j x_lj <= caps_l` for every tenant with a finite cap; x_lj = 0 where w_lj = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations.problems import Array

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Levels:
    """Raise all tenants together: max t with `w_l . x_l = rates_l t`, OEF (9) and Gavel.

    Tenants of `held` stay at the throughput `held_at` instead. With `equal` the level is met
    exactly, as (9) has it; without it, it is a floor, as Gavel's objective has it.
    """

    speedups: Array
    capacity: Array
    rates: Array
    caps: Array
    held: Mask
    held_at: Array
    equal: bool = True


@dataclass(frozen=True, eq=False)
class EnvyFree:
    """Max `sum_l w_l . x_l` so that nobody of `watched` envies anybody, OEF (10).

    `w_l . x_l / pi_l >= w_l . x_i / pi_i` for l in `watched` and every i. The others, whose caps
    bind, have a floor of throughput `floors` instead.
    """

    speedups: Array
    capacity: Array
    weights: Array
    caps: Array
    watched: Mask
    floors: Array


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Max `sum_l w_l . x_l` and nothing else, OEF (4)."""

    speedups: Array
    capacity: Array
    caps: Array


@dataclass(frozen=True, eq=False)
class SolverResult:
    """An optimum: shares, and what one more unit of a bound adds to the objective.

    `prices` of GPUs per type; `cap_prices` of a GPU of a tenant's cap; `level_prices` of the rows
    that tie tenants to the level, 0 for those that are held. `backend` may refine the name of the
    method.
    """

    shares: Array
    prices: Array
    cap_prices: Array
    level_prices: Array
    backend: str


class Backend(Protocol):
    """Solves the programs. Pure: same data, same answer.

    Every method raises `evenshare_core.formulations.problems.SolverError` when it ends without an
    optimum.
    """

    def levels(self, program: Levels) -> SolverResult:
        """Solve `Levels`; the objective is t."""
        ...

    def envy_free(self, program: EnvyFree) -> SolverResult:
        """Solve `EnvyFree`."""
        ...

    def efficiency(self, program: Efficiency) -> SolverResult: ...
