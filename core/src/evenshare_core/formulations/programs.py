"""The linear programs that backends solve, as data, and the backends' protocol.

Every program is maximised over shares x >= 0 with these constraints:

- `sum_l x_lj <= m_j` for every type j;
- `sum_j x_lj <= caps_l` for every tenant with a finite cap;
- x_lj = 0 if w_lj = 0.
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
    exactly, as in (9); otherwise it is a floor, as in Gavel's objective.
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
    """Max `sum_l w_l . x_l` so that no tenant of `watched` envies another, OEF (10).

    `w_l . x_l / pi_l >= w_l . x_i / pi_i` for l in `watched` and every i. The other tenants, whose
    caps bind, have a floor of throughput `floors` instead.
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
    """An optimum: shares, and the increase of the objective per additional unit of a bound.

    `prices` are of GPUs per type, `cap_prices` of a GPU of a tenant's cap. `level_prices` are of
    the rows that tie tenants to the level, 0 for held tenants. `backend` may refine the name of the
    method.
    """

    shares: Array
    prices: Array
    cap_prices: Array
    level_prices: Array
    backend: str


class Backend(Protocol):
    """A solver of the programs. Pure: the same data gives the same result.

    Every method raises `evenshare_core.formulations.problems.SolverError` if it ends without an
    optimum.
    """

    def levels(self, program: Levels) -> SolverResult:
        """Solve `Levels`; the objective is t."""
        ...

    def envy_free(self, program: EnvyFree) -> SolverResult:
        """Solve `EnvyFree`."""
        ...

    def efficiency(self, program: Efficiency) -> SolverResult: ...
