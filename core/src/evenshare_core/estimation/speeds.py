"""Time per iteration on any number of GPUs: equation (2), fitted to measurements.

| paper | here | unit |
|---|---|---|
| N^gpu, N^node | `MeasuredIteration.gpus`, `several_nodes` | GPUs; one node or several |
| T^comp, T^1, T^2 | `SpeedModel.comp_us`, `t1_us`, `t2_us` | microseconds per iteration |
| T^iter | `SpeedModel.fitted` | microseconds per iteration |

T^iter = T^comp + f(n) T^1 on one node, with T^2 in place of T^1 on several; f(1) = 0. In equation
(2), f(n) = n - 1. `Law.RING` has f(n) = 2 (n - 1) / n, the data that each GPU of a ring sends.
`Law.RING` is not in the paper. It agrees with (2) at the two profiled points and is closer to
measurements of other clusters (docs/estimation.md).

The fit minimises squared relative residuals, with coefficients of at least 0: every subset of
coefficients that may be positive is tried. Outliers have less weight (Huber). With T^comp measured
on one GPU and T^1 on two, the result is T^1 = t(2) - t(1), unless that is negative. The error
combines the error of the fit with the distance between the two laws. The distance is 0 up to two
GPUs and dominates for many GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import pi, sqrt

import numpy as np
import numpy.typing as npt

from evenshare_core.domain.averages import RECENT, Average
from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.values import Estimate, estimate_of
from evenshare_core.units import MICROSECOND_NS

Floats = npt.NDArray[np.float64]

# Average error of equation (2), even after long measurements (figure 7 a of the paper).
MODEL_ERROR = 0.05
# Part of a measurement's error that stays, however many iterations are averaged.
MEASURED_ERROR = 0.01
HUBER, HUBER_TURNS = 1.345, 20
# Ratio of standard deviation to mean absolute deviation of a normal distribution.
FROM_MEAN_DEVIATION = sqrt(pi / 2)
_COLUMNS = ("comp", "t1", "t2")


class Law(StrEnum):
    """The growth of communication time with the number of GPUs."""

    LINEAR = "linear"
    RING = "ring"

    def steps(self, gpus: int) -> float:
        """Return f(n), which is 0 for one GPU and 1 for two."""
        return float(gpus - 1) if self is Law.LINEAR else 2.0 * (gpus - 1) / gpus


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """A measured average: `time_us` over `count` iterations, with the spread `spread_us`.

    A single GPU is always on one node.
    """

    gpus: int
    several_nodes: bool
    time_us: int
    count: int = 1
    spread_us: int = 0

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            ValueError: no GPU, time or iteration; a negative spread; or one GPU on several nodes.
        """
        if self.gpus < 1 or self.time_us < 1 or self.count < 1:
            raise ValueError("gpus, time_us, count: must be at least 1")
        if self.spread_us < 0:
            raise ValueError("spread_us: must be at least 0")
        if self.gpus == 1 and self.several_nodes:
            raise ValueError("several_nodes: one GPU is on one node; use False")

    @classmethod
    def from_average(cls, gpus: int, average: Average, *, several_nodes: bool) -> MeasuredIteration:
        """Convert an average of job reports, in nanoseconds; `count` is the number of reports.

        Raises:
            ValueError: nothing was reported.
        """
        # After many reports, the weights 1/R, (1 - 1/R)/R, ... give the same variance as 2 R - 1
        # equal weights.
        count = min(average.reports, 2 * RECENT - 1)
        spread_us = round(average.deviation * FROM_MEAN_DEVIATION / MICROSECOND_NS)
        return cls(gpus, several_nodes, round(average.mean / MICROSECOND_NS), count, spread_us)

    @property
    def relative_error(self) -> float:
        """The relative standard error of the average."""
        return sqrt(MEASURED_ERROR**2 + (self.spread_us / self.time_us) ** 2 / self.count)


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Equation (2) with its coefficients; `t1_us` or `t2_us` is None if it was not measured.

    `covariance`: of the measured coefficients, in the order of the fields.
    """

    law: Law
    comp_us: float
    t1_us: float | None
    t2_us: float | None
    covariance: tuple[tuple[float, ...], ...]

    def fitted(self, gpus: int, *, several_nodes: bool) -> Estimate:
        """Return T^iter in microseconds from the fit, even if this number of GPUs was measured.

        Raises:
            ValueError: less than one GPU, or several GPUs where nothing was measured with several.
        """
        if gpus < 1:
            raise ValueError("gpus: must be at least 1")
        coefficient = self.t2_us if several_nodes else self.t1_us
        if gpus > 1 and coefficient is None:
            nodes = "several nodes" if several_nodes else "one node"
            raise ValueError(
                f"several_nodes: nothing was measured on {nodes}; measure 2 GPUs there"
            )
        names = [name for name, value in self._coefficients() if value is not None]
        weights = np.array(_design_row(self.law, gpus, names, several_nodes=several_nodes))
        values = np.array([value for _, value in self._coefficients() if value is not None])
        variance = max(0.0, float(weights @ np.array(self.covariance) @ weights))
        apart = (coefficient or 0.0) * (Law.LINEAR.steps(gpus) - Law.RING.steps(gpus))
        deviation = sqrt(variance + apart**2)
        return estimate_of(float(weights @ values), deviation, EstimateSource.FITTED)

    def _coefficients(self) -> tuple[tuple[str, float | None], ...]:
        return tuple(zip(_COLUMNS, (self.comp_us, self.t1_us, self.t2_us), strict=True))


def fit_speeds(rows: Sequence[MeasuredIteration], law: Law = Law.LINEAR) -> SpeedModel:
    """Fit equation (2) to measured averages, in any order.

    Raises:
        ValueError: there is no row, or computation and communication cannot be separated because
            all rows have the same number of GPUs, above 1.
    """
    if not rows:
        raise ValueError("rows: nothing was measured; give at least one row")
    ordered = tuple(
        sorted(rows, key=lambda row: (row.gpus, row.several_nodes, row.time_us, row.count))
    )
    shapes = {row.several_nodes for row in ordered if row.gpus > 1}
    names = ["comp", *(["t1"] if False in shapes else []), *(["t2"] if True in shapes else [])]
    design = np.array(
        [_design_row(law, row.gpus, names, several_nodes=row.several_nodes) for row in ordered]
    )
    if np.linalg.matrix_rank(design) < len(names):
        raise ValueError(
            "rows: one number of GPUs cannot separate computation from communication; measure 1"
            " GPU too"
        )
    times = np.array([float(row.time_us) for row in ordered])
    errors = np.array([sqrt(MODEL_ERROR**2 + row.relative_error**2) for row in ordered])
    weights = 1 / (errors * times)
    turned = np.ones(len(ordered))
    for _ in range(HUBER_TURNS):
        values, active = _least_squares(design, times, weights * np.sqrt(turned))
        residuals = np.abs(design @ values - times) * weights
        turned = np.minimum(1.0, HUBER / np.maximum(residuals, HUBER))
    free = max(1, len(ordered) - len(active))
    stretch = max(1.0, float(turned @ residuals**2) / free)
    covariance = _covariance(design, weights * np.sqrt(turned), active) * stretch
    known = dict(zip(names, values.tolist(), strict=True))
    return SpeedModel(
        law, known["comp"], known.get("t1"), known.get("t2"),
        tuple(tuple(row) for row in covariance.tolist()),
    )  # fmt: skip # rows of what belongs together


def _design_row(law: Law, gpus: int, names: Sequence[str], *, several_nodes: bool) -> list[float]:
    mine = "t2" if several_nodes else "t1"
    return [1.0 if name == "comp" else law.steps(gpus) * (name == mine) for name in names]


def _least_squares(design: Floats, times: Floats, weights: Floats) -> tuple[Floats, list[int]]:
    """Return the best non-negative coefficients, and the indices of the positive ones."""
    columns = design.shape[1]
    best: tuple[float, Floats, list[int]] | None = None
    for size in range(columns, 0, -1):
        for chosen in combinations(range(columns), size):
            some = list(chosen)
            part, *_ = np.linalg.lstsq(
                design[:, some] * weights[:, None], times * weights, rcond=None
            )
            if part.min() < 0:
                continue
            values = np.zeros(columns)
            values[some] = part
            cost = float((((design @ values - times) * weights) ** 2).sum())
            if best is None or cost < best[0]:
                best = (cost, values, some)
    assert best is not None  # noqa: S101 - T^comp alone is a weighted mean, which is positive
    return best[1], best[2]


def _covariance(design: Floats, weights: Floats, active: list[int]) -> Floats:
    scaled = design[:, active] * weights[:, None]
    whole = np.zeros((design.shape[1], design.shape[1]))
    whole[np.ix_(active, active)] = np.linalg.pinv(scaled.T @ scaled)
    return whole
