"""Guessed prices of GPU types for `Levels`, and the columns that are near a tenant's cheapest one.

At given prices p a tenant uses the types of the least p_j / w_lj. The prices of (9) minimise the
total price of all GPUs over the total cost of all work; this ratio is then the level t. The cost of
a unit of work, min_j p_j / w_lj, has corners. It is smoothed to
`(sum_j (p_j / w_lj)^-r)^(-1/r)`. Newton's method needs a few steps in the logarithms of the prices,
and r rises in `STAGES`. Caps are ignored: the guess decides how many programs
`evenshare_core.formulations.oef_columns` solves, not what they result in.

Logarithms of prices are rounded to a grid. So the last bits of a machine's arithmetic, or the
number of its threads, change no column.

Source: ours; smoothed as the cost function of a constant elasticity of substitution.
"""

import numpy as np

from evenshare_core.formulations.problems import Array
from evenshare_core.formulations.programs import Levels, Mask

STAGES = (0.3, 0.03, 0.003, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)  # 1 / r
ENOUGH = 1e-3  # the stages after it are for speeds that hardly differ
STEPS = 12  # maximum number of Newton's steps in a stage
LONGEST = 4.0  # step in the logarithm of a price, in units of 1 / r
GRID = 1 / 512  # rounding of the logarithm of a price, in units of 1 / r
NEAR = 4.0  # a near column is dearer than the tenant's cheapest one by this much, in units of 1 / r
MANY = 1.5  # near columns per tenant; if there are more, the next stage follows
CLOSEST = 8  # columns of each type that are chosen even if they are not near


def near_columns(program: Levels, usable: Mask, size: Array) -> Mask:
    """Return the columns near each tenant's cheapest one, and the `CLOSEST` ones of each type.

    `size`: the work of each tenant, relative to the others. Every tenant of a size above 0 can run
    on a type that has GPUs.
    """
    rows = np.flatnonzero(size > 0)
    types = np.flatnonzero(usable.any(axis=0))
    with np.errstate(divide="ignore"):
        speeds = np.log(np.where(usable, program.speedups, 0.0)[np.ix_(rows, types)])
    smoothed = Smoothed(speeds, np.log(program.capacity[types]), np.log(size[rows]))
    few = MANY * len(size) + CLOSEST * len(types)
    prices, last = smoothed.start(), usable.size + 1
    for smooth in STAGES:
        prices = smoothed.lowered(prices, smooth)
        if smooth > ENOUGH:
            continue
        grid = smooth * GRID
        guess = np.ones(usable.shape[1])
        guess[types] = np.exp(np.round((prices - prices.mean()) / grid) * grid)
        costs = np.divide(guess, program.speedups, out=np.full(usable.shape, np.inf), where=usable)
        dearer = costs / costs.min(axis=1, keepdims=True)
        near = usable & (dearer <= 1 + NEAR * smooth)
        count = int(near.sum())
        if count <= few or count == last:
            break
        last = count
    chosen: Mask = near | (usable & least(dearer, CLOSEST))
    return chosen


def least(numbers: Array, count: int) -> Mask:
    """Return the `count` least numbers of each column; of equal numbers, the first."""
    places = np.argsort(numbers, axis=0, kind="stable")[:count]
    mask = np.zeros(numbers.shape, dtype=bool)
    np.put_along_axis(mask, places, values=True, axis=0)
    return mask


class Smoothed:
    """The smoothed level as a function of the prices; all in logarithms."""

    def __init__(self, speeds: Array, capacity: Array, size: Array) -> None:
        self.speeds, self.capacity, self.size = speeds, capacity, size

    def start(self) -> Array:
        """Return the mean speed of each type."""
        able = np.isfinite(self.speeds)
        return np.asarray(np.where(able, self.speeds, 0.0).sum(axis=0) / able.sum(axis=0))

    def lowered(self, prices: Array, smooth: float) -> Array:
        """Return the prices of the least level with 1 / r = `smooth`, starting from `prices`."""
        for _ in range(STEPS):
            step = self.step(prices, smooth)
            longest = float(np.abs(step).max())
            prices = prices + step * min(1.0, LONGEST * smooth / (longest or 1.0))
            if longest < smooth / 10:
                break
        return prices

    def step(self, prices: Array, smooth: float) -> Array:
        """Return Newton's step.

        The gradient is the part of each type in the price of all GPUs, less its part in the cost of
        all work. The matrix is the second derivative where both parts are equal; it is positive
        semidefinite everywhere. A common factor of all prices changes nothing, so it is fixed.
        """
        kinds = len(prices)
        gain = (self.speeds - prices) / smooth
        best = gain.max(axis=1, keepdims=True)
        parts = np.exp(gain - best)
        sums = parts.sum(axis=1, keepdims=True)
        parts /= sums
        costs = _fractions(self.size - smooth * (best + np.log(sums))[:, 0])
        bought = costs @ parts
        mixed = (parts * costs[:, None]).T @ parts
        gradient = _fractions(self.capacity + prices) - bought
        matrix = (1 + 1 / smooth) * (np.diag(bought) - mixed)
        fixed = np.full((kinds, kinds), 1 / kinds) + np.eye(kinds) * 1e-9 / smooth
        return -np.asarray(np.linalg.solve(matrix + fixed, gradient))


def _fractions(logs: Array) -> Array:
    numbers = np.exp(logs - logs.max())
    return np.asarray(numbers / numbers.sum())
