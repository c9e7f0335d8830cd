"""Errors of the estimated iterations of a live job until it reaches its target metric.

    .venv/bin/python benchmarks/live_curves.py

It measures virtual jobs, by the curves of the virtual executor, and `examples/train.py`, by its
accuracy. It prints the figures of docs/estimation.md.
"""

import os
import random
import sys
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "client" / "src")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")

import numpy as np  # noqa: E402 - the path comes first
import train  # type: ignore[import-not-found]  # noqa: E402 - of examples/

from evenshare_core.estimation.curves import estimate_stop  # noqa: E402 - the same
from evenshare_core.estimation.evaluations import (  # noqa: E402 - the same
    MetricPoint,
    StopCriterion,
    thinned,
)
from scheduling.engine.executors.virtual_curves import evaluations_until  # noqa: E402 - the same

JOBS, STEPS, CAP = 120, 1500, 3000
TARGETS = (0.92, 0.93, 0.94, 0.945, 0.95, 0.955, 0.958)


def main() -> None:
    for part in (0.25, 0.5, 0.75):
        print(f"virtual, {part:g} of the way:", virtual(part))
    points = training()
    for target in TARGETS:
        print(f"train.py to {target:g}:", *(real(points, target, part) for part in (0.5, 0.75)))


def virtual(part: float) -> str:
    """Return the mean and median absolute error, and the counts in the band and from the cap."""
    off, inside, caps = [], 0, 0
    for job in range(1, JOBS + 1):
        rng = random.Random(f"m{job}")  # noqa: S311 - a workload, not a secret
        true = rng.randrange(1800, 5400)
        cap = round(true * rng.uniform(1.2, 2.0))
        criterion = StopCriterion(0.93 if job % 2 else 0.25, cap, lower_is_better=job % 2 == 0)
        seen = evaluations_until(job, criterion, iterations=true, done=int(true * part))
        stop = estimate_stop(thinned(seen, criterion), criterion)
        off.append(abs(stop.iterations.amount / true - 1))
        inside += stop.low <= true <= stop.high
        caps += stop.iterations.source == "cap"
    return f"mean {mean(off):.1%}, median {median(off):.1%}, in the band {inside}, caps {caps}"


def training() -> list[MetricPoint]:
    """Return the accuracy of the example, as it reports it."""
    state = train.fresh(1)
    teacher = np.random.default_rng(7).normal(size=(train.FEATURES, train.CLASSES))
    held_out = np.random.default_rng(8).normal(size=(train.HELD_OUT, train.FEATURES))
    points = []
    for step in range(1, STEPS + 1):
        train.train(state, teacher)
        if step % train.EVALUATE_EVERY == 0:
            points.append(MetricPoint(step, train.accuracy(state["arrays"], held_out, teacher)))
    return points


def real(points: list[MetricPoint], target: float, part: float) -> str:
    """Return the error of the example's estimated stop after this part of the run."""
    stops_at = next(point.iteration for point in points if point.metric >= target)
    seen = [point for point in points if point.iteration <= part * stops_at]
    stop = estimate_stop(seen, StopCriterion(target, CAP))
    band = "inside" if stop.low <= stops_at <= stop.high else "outside"
    off = stop.iterations.amount / stops_at - 1
    return f"{stops_at}, {off:+.0%} ({stop.iterations.source.value}, {band})"


if __name__ == "__main__":
    main()
