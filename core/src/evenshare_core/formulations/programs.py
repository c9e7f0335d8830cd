"""The linear programs that backends solve, as data, and the protocol of backends.

Every program is maximised over shares x >= 0 with these constraints:

- `sum_l x_lj <= m_j` for every type j;
- `sum_j x_lj <= caps_l` for every tenant with a finite cap;
- x_lj = 0 if w_lj = 0.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations.problems import Array

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Levels:
    """Raise the level of all tenants: max t with `w_l . x_l = rates_l t`, OEF (9) and Gavel.

    Tenants of `held` stay at the throughput `held_at` instead. With `equal`, throughputs are equal
    to the level, as in (9); otherwise the level is a floor, as in Gavel's objective.
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
    """Max `sum_l w_l . x_l` such that no tenant of `watched` envies another, OEF (10).

    `w_l . x_l / pi_l >= w_l . x_i / pi_i` for l in `watched` and every i. The other tenants, whose
    caps bind, have a minimum throughput of `floors` instead.
    """

    speedups: Array
    capacity: Array
    weights: Array
    caps: Array
    watched: Mask
    floors: Array


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Max `sum_l w_l . x_l` without further constraints, OEF (4)."""

    speedups: Array
    capacity: Array
    caps: Array


@dataclass(frozen=True, eq=False)
class SolverResult:
    """An optimum: its shares and its prices.

    A price is the increase of the objective if a bound rises by one unit. `prices`: of the GPUs of
    each type. `cap_prices`: of each tenant's cap. `level_prices`: of the rows that tie tenants to
    the level, 0 for held tenants. `backend` names the solver, and may add its method.
    """

    shares: Array
    prices: Array
    cap_prices: Array
    level_prices: Array
    backend: str


class Backend(Protocol):
    """A solver of the programs; the same data must give the same result.

    Every method raises `evenshare_core.formulations.problems.SolverError` if it ends without an
    optimum.
    """

    def levels(self, program: Levels) -> SolverResult:
        """Solve `Levels`; the objective is t."""
        ...

    def envy_free(self, program: EnvyFree) -> SolverResult: ...

    def efficiency(self, program: Efficiency) -> SolverResult: ...
