"""Families of learning curves, and their fit to a metric.

Source: T. Domhan, J. T. Springenberg, F. Hutter, "Speeding up Automatic Hyperparameter Optimization
of Deep Neural Networks by Extrapolation of Learning Curves", IJCAI 2015, table 1.

A curve is a + b h(x; theta), with b at least 0 and h not falling. A metric that should fall is
negated first. x counts evaluations, from about 1 on. Times and rates in theta are logarithms.

| family | h | also known as |
|---|---|---|
| pow3 | -x^-c | power law |
| pow4 | -(1 + x / s)^-c | |
| exp3 | -exp(-x / s) | |
| weibull | -exp(-(x / s)^c) | exp4, Janoschek: the same curve in other symbols |
| mmf | -1 / (1 + (x / s)^c) | Morgan-Mercer-Flodin, Hill |
| ilog2 | -1 / log(x + 1) | |
| vapor_pressure | exp(-s / x + c log x), a = 0 | |
| log_power | 1 / (1 + (x / s)^-c), a = 0 | Hill3 |

The last two start at 0. For a metric that should fall, such as a loss, they end at 0, and the signs
of the exponents are reversed. Of Domhan's eleven families, log log linear is left out, since it
grows without limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from evenshare_core.estimation.optimiser import least_squares

Floats = npt.NDArray[np.float64]
Shape = Callable[[Floats, Any, int], Floats]
GRID = 9  # values of each shape parameter that are tried before the search
EVALUATIONS = 60  # function evaluations of the search: a limit that does not depend on time
LONGEST = 30.0  # largest exponent of the vapour curve; above it, the curve is flat at 0 or vertical
STEEPEST = 1e6  # largest b, in ranges of the metric; a steeper curve would fit a part without data


@dataclass(frozen=True, slots=True)
class CurveFamily:
    """A family of curves: `shape(x, theta, sign)` is h; sign is -1 if the metric should fall.

    `bounds(longest)`: bounds of each element of theta, for evaluations up to x = `longest`.
    """

    name: str
    shape: Shape
    bounds: Callable[[float], tuple[tuple[float, float], ...]]
    has_limit: bool = True

    def parameters(self) -> int:
        """The number of fitted parameters."""
        return len(self.bounds(1.0)) + 1 + self.has_limit

    def values(self, parameters: Floats, x: Floats, sign: int) -> Floats:
        """Return the curve at x for the parameters (a,) b, theta."""
        limit, first = (parameters[0], 1) if self.has_limit else (0.0, 0)
        curve: Floats = limit + parameters[first] * self.shape(x, parameters[first + 1 :], sign)
        return curve


def _power(x: Floats, theta: Any, sign: int) -> Floats:
    del sign
    power: Floats = -(x ** -np.exp(theta[0]))
    return power


def _shifted_power(x: Floats, theta: Any, sign: int) -> Floats:
    del sign
    power: Floats = -((1 + x / np.exp(theta[0])) ** -np.exp(theta[1]))
    return power


def _exponential(x: Floats, theta: Any, sign: int) -> Floats:
    del sign
    curve: Floats = -np.exp(-x / np.exp(theta[0]))
    return curve


def _weibull(x: Floats, theta: Any, sign: int) -> Floats:
    del sign
    curve: Floats = -np.exp(-((x / np.exp(theta[0])) ** np.exp(theta[1])))
    return curve


def _mmf(x: Floats, theta: Any, sign: int) -> Floats:
    del sign
    curve: Floats = -1 / (1 + (x / np.exp(theta[0])) ** np.exp(theta[1]))
    return curve


def _inverse_log(x: Floats, theta: Any, sign: int) -> Floats:
    del theta, sign
    curve: Floats = -1 / np.log(x + 1)
    return curve


def _vapour(x: Floats, theta: Any, sign: int) -> Floats:
    exponent = sign * (theta[1] * np.log(x) - np.exp(theta[0]) / x)
    curve: Floats = sign * np.exp(np.clip(exponent, -LONGEST, LONGEST))
    return curve


def _log_power(x: Floats, theta: Any, sign: int) -> Floats:
    curve: Floats = sign / (1 + (x / np.exp(theta[0])) ** (-sign * np.exp(theta[1])))
    return curve


def _logs(low: float, high: float) -> tuple[float, float]:
    return float(np.log(low)), float(np.log(high))


FAMILIES = (
    CurveFamily("pow3", _power, lambda _: (_logs(0.05, 3),)),
    CurveFamily("pow4", _shifted_power, lambda n: (_logs(0.5, 5 * n), _logs(0.1, 6))),
    CurveFamily("exp3", _exponential, lambda n: (_logs(n / 20, 20 * n),)),
    CurveFamily("weibull", _weibull, lambda n: (_logs(n / 50, 20 * n), _logs(0.25, 3))),
    CurveFamily("mmf", _mmf, lambda n: (_logs(0.5, 10 * n), _logs(0.3, 5))),
    CurveFamily("ilog2", _inverse_log, lambda _: ()),
    CurveFamily(
        "vapor_pressure",
        _vapour,
        lambda n: (_logs(0.05, min(max(n, 1.0), LONGEST)), (0.0, 1.0)),
        has_limit=False,
    ),
    CurveFamily(
        "log_power", _log_power, lambda n: (_logs(0.2, 10 * n), _logs(0.2, 5)), has_limit=False
    ),
)


@dataclass(frozen=True, slots=True)
class CurveFit:
    """A family fitted to points: parameters, and their covariance for a noise of 1.

    `squares`: the sum of squared residuals. `variance`: `squares` over the degrees of freedom.
    """

    family: CurveFamily
    parameters: Floats
    covariance: Floats
    squares: float
    variance: float


def fit_curve(family: CurveFamily, x: Floats, y: Floats, sign: int) -> CurveFit:
    """Fit a family by bounded least squares from the best point of a grid; deterministic.

    x: above 0, ascending. y: the metric times sign. There must be more points than parameters.
    """
    bounds = family.bounds(float(x[-1]))
    first = _grid_start(family, x, y, sign, bounds)
    scale = float(np.ptp(y)) or 1.0
    linear = 1 + family.has_limit
    low = np.array([-np.inf] * (linear - 1) + [0.0] + [low for low, _ in bounds])
    high = np.array([np.inf] * (linear - 1) + [STEEPEST * scale] + [high for _, high in bounds])
    done = least_squares(
        lambda parameters: (family.values(parameters, x, sign) - y) / scale,
        np.clip(first, low, high),
        bounds=(low, high),
        x_scale=np.array([scale] * linear + [1.0] * len(bounds)),
        max_nfev=EVALUATIONS,
    )
    slopes = done.jac * scale
    free = max(1, len(x) - len(first))
    squares = 2 * float(done.cost) * scale**2
    covariance: Floats = np.linalg.pinv(slopes.T @ slopes)
    return CurveFit(family, done.x, covariance, squares, squares / free)


def _grid_start(
    family: CurveFamily,
    x: Floats,
    y: Floats,
    sign: int,
    bounds: tuple[tuple[float, float], ...],
) -> Floats:
    """Return the best point of a grid of theta, each with its best a and b in closed form."""
    axes = [np.linspace(low, high, GRID) for low, high in bounds]
    best: tuple[float, Floats] | None = None
    for theta in product(*axes):
        shape = family.shape(x, theta, sign)
        middle, height = (shape.mean(), y.mean()) if family.has_limit else (0.0, 0.0)
        apart = shape - middle
        square = float(apart @ apart)
        slope = max(0.0, float(apart @ (y - height)) / square) if square > 0 else 0.0
        limit = height - slope * middle
        rest = y - limit - slope * shape
        cost = float(rest @ rest)
        if best is None or cost < best[0]:
            head = [limit, slope] if family.has_limit else [slope]
            best = (cost, np.array([*head, *theta]))
    assert best is not None  # noqa: S101 - an empty grid has one point, that without theta
    return best[1]
