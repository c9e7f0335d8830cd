"""Data to measure the estimator: Gavel's throughputs, and learning curves drawn from seeds.

Measured throughputs count the iterations of all workers. So an iteration takes GPUs / throughput.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evenshare_core.estimation.curves import StopEstimate, estimate_stop
from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from evenshare_core.estimation.speeds import Law, MeasuredIteration, fit_speeds
from evenshare_core.units import SECOND_US

GAVEL = Path(__file__).resolve().parents[1] / "data" / "gavel_scales.csv"
GPU_TYPES = ("k80", "p100", "v100")
# Families of curves: first those of the ensemble, then others.
INSIDE = ("pow3", "pow4", "exp3", "weibull", "mmf", "log_power")
OUTSIDE = ("two_exponentials", "gompertz", "vapor_drift")
UNFORESEEN = "rate_drop"
EVALUATIONS, EVERY = 200, 100

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SpeedError:
    """The signed relative error of a predicted time, compared with the measured time."""

    job: str
    gpu_type: str
    gpus: int
    several_nodes: bool
    error: float
    is_in_band: bool


def gavel_jobs() -> dict[tuple[str, str], list[MeasuredIteration]]:
    """Return the measured times per iteration by (job type, GPU type)."""
    jobs: dict[tuple[str, str], list[MeasuredIteration]] = {}
    with GAVEL.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            gpus = int(row["scale"])
            for gpu_type in GPU_TYPES:
                for several, column in ((False, gpu_type), (True, f"{gpu_type}_unc")):
                    speed = float(row[column] or 0)
                    if speed and not (several and gpus == 1):
                        time_us = round(SECOND_US * gpus / speed)
                        measured = MeasuredIteration(gpus, several, time_us)
                        jobs.setdefault((row["job_type"], gpu_type), []).append(measured)
    return jobs


def profiled_errors(law: Law) -> Iterator[SpeedError]:
    """Predict speeds on 4 and 8 GPUs from profiles of one GPU, two on a node, two on two nodes."""
    for key, rows in gavel_jobs().items():
        profile = [row for row in rows if row.gpus <= 2]
        have = {(row.gpus, row.several_nodes) for row in profile}
        if (1, False) in have:
            for row in rows:
                if row.gpus > 2 and (2, row.several_nodes) in have:
                    yield _error(key, profile, row, law)


def held_out_errors(law: Law) -> Iterator[SpeedError]:
    """Predict each measurement of at least 2 GPUs from all other measurements of its job."""
    for key, rows in gavel_jobs().items():
        for row in rows:
            others = [other for other in rows if other is not row]
            shapes = {other.several_nodes for other in others if other.gpus > 1}
            if row.gpus > 1 and row.several_nodes in shapes:
                yield _error(key, others, row, law)


def _error(
    key: tuple[str, str], known: list[MeasuredIteration], row: MeasuredIteration, law: Law
) -> SpeedError:
    answer = fit_speeds(known, law).fitted(row.gpus, several_nodes=row.several_nodes)
    apart = answer.amount - row.time_us
    return SpeedError(
        *key,
        row.gpus,
        row.several_nodes,
        apart / row.time_us,
        is_in_band=abs(apart) <= 1.2816 * answer.deviation,
    )


@dataclass(frozen=True, slots=True)
class DrawnRun:
    """A job that stops at a metric value, its evaluations, and the iterations until its stop."""

    family: str
    points: tuple[MetricPoint, ...]
    criterion: StopCriterion
    stopped: int

    def at_half(self) -> StopEstimate:
        seen = [point for point in self.points if 2 * point.iteration <= self.stopped]
        return estimate_stop(seen, self.criterion)

    def error(self) -> float:
        """Return the signed relative error of the estimate after half of the iterations."""
        return self.at_half().iterations.amount / self.stopped - 1


def drawn_runs(family: str, seeds: range) -> Iterator[DrawnRun]:
    """Yield runs whose target is 98, 99 or 99.5 % of the best metric in 200 evaluations.

    The cap of a run is 200 evaluations. For half of the runs a lower metric is better. The noise is
    0.002 or 0.005, and the final metric is between 0.7 and 0.95. Runs that stop within 24
    evaluations, or never, are left out.
    """
    for seed in seeds:
        draw = np.random.default_rng(seed)
        clean = _curve(family, draw)
        target = float((0.98, 0.99, 0.995)[seed % 3] * clean.max())
        noisy = clean + (0.002, 0.005)[seed // 3 % 2] * draw.normal(size=EVALUATIONS)
        met = np.flatnonzero(noisy >= target)
        if len(met) and met[0] >= 24:
            less = seed % 2 == 1
            values = 1 - noisy if less else noisy
            points = tuple(
                MetricPoint(EVERY * place, float(value)) for place, value in enumerate(values, 1)
            )
            criterion = StopCriterion(1 - target if less else target, EVERY * EVALUATIONS, less)
            yield DrawnRun(family, points, criterion, EVERY * (int(met[0]) + 1))


def _curve(family: str, draw: np.random.Generator) -> Floats:
    x = np.arange(1.0, EVALUATIONS + 1)
    best = draw.uniform(0.7, 0.95)
    one, other = draw.uniform(size=2)
    curve: Floats
    match family:
        case "pow3":
            curve = best - 0.6 * x ** -(0.4 + 0.8 * one)
        case "pow4":
            curve = best - 0.6 * (1 + x / (5 + 25 * one)) ** -(0.6 + 0.9 * other)
        case "exp3":
            curve = best - 0.6 * np.exp(-x / (30 + 50 * one))
        case "weibull":
            curve = best - 0.6 * np.exp(-((x / (20 + 40 * one)) ** (0.5 + 0.7 * other)))
        case "mmf":
            curve = best - 0.6 / (1 + (x / (10 + 30 * one)) ** (0.8 + 0.8 * other))
        case "log_power":
            curve = best / (1 + (x / (8 + 22 * one)) ** -(0.8 + 0.4 * other))
        case "two_exponentials":
            curve = best - 0.4 * np.exp(-x / (5 + 10 * one)) - 0.2 * np.exp(-x / (60 + 60 * other))
        case "gompertz":
            curve = best * np.exp(-np.exp(-(x - 5 - 15 * one) / (20 + 30 * other)))
        case "vapor_drift":
            curve = best * np.exp(-(3 + 9 * one) / x) * (x / EVALUATIONS) ** 0.02
        case _:  # the learning rate drops, which earlier points cannot predict
            curve = best - 0.5 * x**-0.6 - 0.05 * (x < 110)
    return curve
