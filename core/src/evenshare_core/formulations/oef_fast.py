"""The methods that rounds use: exact, and the fastest of this package.

- Levels, OEF (9) and `gavel`: `northwest`, by prefix sums. It needs tenants that can run on
  all types, no caps, and ordered ratios: `w_l,j+1 / w_lj` must not fall in l for any j. The
  order is tested first, because the method is wrong otherwise.
- Other levels: `evenshare_core.formulations.oef_columns`, a model of few columns for OR-Tools.
- (10): `evenshare_core.formulations.oef_cooperative`, by HiGHS.
- (4) with caps: the full program by GLOP, in half to four fifths of HiGHS's time.

`Former` is the method of version 5 of the sharing policies, so that its rounds replay to the same
bytes. It solves other levels by HiGHS's interior point method with crossover.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations import oef_cooperative
from evenshare_core.formulations.lp import ITERATIONS
from evenshare_core.formulations.oef_columns import FewColumns
from evenshare_core.formulations.oef_highs import Highs, bounds, uppers
from evenshare_core.formulations.ortools_programs import GlopProgram
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.formulations.programs import Efficiency, EnvyFree, Levels, SolverResult

ORTOOLS = "ortools"  # the backend that `Fast` names if OR-Tools found the shares
HALVINGS = 200  # maximum number of steps of the bisection: more than the bits of a double
DUST = 1e-12  # smaller parts of a tenant are rounding errors


class Former(Highs):
    """Prefix sums for levels, lazy envy rows, and the full HiGHS program for other levels."""

    name = "fast"

    def levels(self, program: Levels) -> SolverResult:
        order = None
        if not program.held.any() and np.isinf(program.caps).all() and program.speedups.all():
            order = ordered(program.speedups)
        if order is None:
            return self.other_levels(program)
        shares, prices = northwest(program.speedups[order], program.capacity, program.rates[order])
        unsorted = np.empty_like(shares)
        unsorted[order] = shares
        none = np.zeros(len(order))
        # Every level row binds, and its price is the cost of a unit of the tenant's work.
        level_prices = (prices / program.speedups).min(axis=1)
        return SolverResult(unsorted, prices, none, level_prices, self.name)

    def other_levels(self, program: Levels) -> SolverResult:
        """Solve `Levels` if prefix sums do not apply."""
        return super().levels(program)

    def envy_free(self, program: EnvyFree) -> SolverResult:
        """Solve `EnvyFree` by lazy rows."""
        order = ordered(program.speedups) if program.speedups.all() else None
        if order is None:
            return oef_cooperative.solve(program, name=self.name)
        turned = EnvyFree(
            program.speedups[order],
            program.capacity,
            program.weights[order],
            program.caps[order],
            program.watched[order],
            program.floors[order],
        )
        answer = oef_cooperative.solve(turned, name=self.name, ordered=True)
        back = np.argsort(order)
        return SolverResult(
            answer.shares[back],
            answer.prices,
            answer.cap_prices[back],
            answer.level_prices,
            self.name,
        )


class Fast(Former):
    """As `Former`, and OR-Tools for other levels and for the largest total."""

    def __init__(self) -> None:
        self.columns: FewColumns | None = None

    def other_levels(self, program: Levels) -> SolverResult:
        """Solve `Levels`, from the columns of the program before if only held tenants differ.

        A backend is made for one solution (`evenshare_core.formulations.shares`), so these columns
        depend on nothing but the problem.
        """
        before = self.columns
        if before is not None and before.program.speedups is not program.speedups:
            before = None
        self.columns = FewColumns(program, before)
        return self.columns.solve(ORTOOLS)

    def efficiency(self, program: Efficiency) -> SolverResult:
        """Solve `Efficiency` by GLOP."""
        rows = bounds(program.speedups, program.capacity, program.caps)
        model = GlopProgram(program.speedups.ravel(), uppers(program.speedups), rows)
        model.limit(ITERATIONS)
        return self.result_of_rows(program, *model.solve(), ORTOOLS)


def ordered(speedups: Array) -> NDArray[np.int64] | None:
    """Return an order of tenants in which no ratio of adjacent types falls, or None if none exists.

    Speedups must be above 0.
    """
    ratios = speedups[:, 1:] / speedups[:, :-1]
    if (ratios[1:] >= ratios[:-1]).all():
        return np.arange(len(speedups))
    order = np.lexsort(ratios.T[::-1])
    sorted_ = ratios[order]
    return order if bool((sorted_[1:] >= sorted_[:-1]).all()) else None


def northwest(speedups: Array, capacity: Array, rates: Array) -> tuple[Array, Array]:
    """Solve (9) for ordered speedups above 0: shares, and prices with `m . p = t`.

    Slow types go to the first tenants. Let u = 1 / t. Type j serves the tenants from b_j-1 to b_j
    (fractions allowed), where S_j(b_j) - S_j(b_j-1) = m_j u. S_j(b) is the sum of rates_l / w_lj
    over l < b, linear in between. The last type must end at the last tenant. This is one equation
    in u, piecewise linear. Newton's step is used inside the bracket, otherwise bisection.

    Raises:
        SolverError: speeds differ too much for floats, or the last type ended at another tenant.
    """
    tenants = len(speedups)
    work = (rates[:, None] / speedups).T
    sums = np.zeros((len(capacity), tenants + 1))
    np.cumsum(work, axis=1, out=sums[:, 1:])
    if not (sums[:, 1:] > sums[:, :-1]).all():
        raise SolverError("speeds or weights differ too much to be added up")
    table = Table(sums.tolist(), capacity.tolist(), tenants)
    with np.errstate(divide="ignore"):
        low, high = 0.0, float((sums[:, -1] / capacity).min())
    guess = high
    for _ in range(HALVINGS):
        ends, end, slope = table.ends(guess)
        if abs(end - tenants) <= 1e-13 * tenants:
            break
        low, high = (guess, high) if end < tenants else (low, guess)
        guess += (tenants - end) / slope
        if not low < guess < high:
            guess = (low + high) / 2
            if guess in (low, high):
                break
    else:
        raise SolverError("the boundaries of types did not meet the last tenant")
    edges = np.clip(np.array([0.0, *ends]), 0.0, tenants)
    edges[-1] = tenants
    index = np.arange(tenants)
    part = np.minimum(edges[1:, None], index + 1) - np.maximum(edges[:-1, None], index)
    part[part < DUST] = 0.0
    prices = np.ones(len(capacity))
    for type_index, edge in enumerate(ends[:-1]):
        # The tenant at the boundary uses both types, so p_j+1 / p_j = w_c,j+1 / w_cj.
        both = speedups[min(int(edge), tenants - 1)]
        prices[type_index + 1] = prices[type_index] * both[type_index + 1] / both[type_index]
    prices /= float(prices @ capacity) * guess
    return (part * work).T / guess, prices


class Table:
    """The sums S_j as lists: reading an entry is ten times as fast as with an array."""

    def __init__(self, sums: list[list[float]], capacity: list[float], tenants: int) -> None:
        self.sums, self.capacity, self.last = sums, capacity, tenants - 1

    def ends(self, inverse: float) -> tuple[list[float], float, float]:
        """Return the end b_j of each type for u = `inverse`; and the last end, with its slope in u.

        Past the last tenant, the last piece is extended, so that the end always grows with u.
        """
        ends: list[float] = []
        edge, slope = 0.0, 0.0
        for sums, gpus in zip(self.sums, self.capacity, strict=True):
            piece = min(int(edge), self.last)
            step = sums[piece + 1] - sums[piece]
            used, growth = sums[piece] + (edge - piece) * step + gpus * inverse, slope * step + gpus
            piece = min(max(bisect_right(sums, used) - 1, 0), self.last)
            step = sums[piece + 1] - sums[piece]
            edge, slope = piece + (used - sums[piece]) / step, growth / step
            ends.append(edge)
        return ends, edge, slope
