"""Benchmark of UniSched's estimator: errors of its speeds and iterations, and an estimate's cost.

Speeds: Gavel's throughputs are predicted from a profile of at most two GPUs. Each throughput is
also predicted from all others of its job. Iterations: runs drawn from 20 seeds per family are
estimated after half of their iterations. The weights of the ensemble were chosen with other seeds.
The last part is a training run of examples/train.py on this machine: its loss, averaged over 20
steps, must reach each of four targets. The errors of iterations are compared with those of the
user's cap, the estimate in a scheduler without an estimator.
"""

import importlib.util
import os
import statistics
import time
from pathlib import Path

# Use one thread. examples/train.py sets this too late for this process. On a busy machine, the
# threads of small matrix products wait for each other longer than they compute.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402 - it reads the number of threads when it is imported

from evenshare_core.estimation.curves import estimate_stop  # noqa: E402 - the same
from evenshare_core.estimation.evaluations import (  # noqa: E402 - the same
    MetricPoint,
    StopCriterion,
)
from evenshare_core.estimation.speeds import Law  # noqa: E402 - the same
from tests.papers.estimation_data import (  # noqa: E402 - it imports numpy
    INSIDE,
    OUTSIDE,
    UNFORESEEN,
    drawn_runs,
    held_out_errors,
    profiled_errors,
)

SEEDS = range(100, 120)
STEPS, AVERAGED = 3000, 20
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "train.py"
GOAL_SPEED, GOAL_DURATION = 0.05, 0.10


def speeds() -> None:
    """Print the errors of predicted speeds, by law, shape and known measurements."""
    for law in Law:
        for name, errors in (("profile", profiled_errors(law)), ("others", held_out_errors(law))):
            every = list(errors)
            for several in (False, True):
                some = [row for row in every if row.several_nodes is several]
                off = [abs(row.error) for row in some]
                band = statistics.mean(row.is_in_band for row in some)
                nodes = "several nodes" if several else "one node"
                print(
                    f"speed, {law:<6} from {name:<7} {nodes:<13} {len(off):>3} predictions:"
                    f" mean {statistics.mean(off):5.1%}, median {statistics.median(off):5.1%},"
                    f" largest {max(off):4.0%}; {band:.0%} in the band of 80 %,"
                    f" {statistics.mean(row.error >= -0.05 for row in some):.0%} not too short"
                )


def iterations() -> list[float]:
    """Print the errors of estimated iterations by family; return all but those of `rate_drop`."""
    together: list[float] = []
    spent_s, count = 0.0, 0
    for family in (*INSIDE, *OUTSIDE, UNFORESEEN):
        off, by_cap, inside = [], [], []
        for run in drawn_runs(family, SEEDS):
            began = time.process_time()
            answer = run.at_half()
            spent_s, count = spent_s + time.process_time() - began, count + 1
            off.append(abs(answer.iterations.amount / run.stopped - 1))
            by_cap.append(run.criterion.cap / run.stopped - 1)
            inside.append(answer.low <= run.stopped <= answer.high)
        print(
            f"iterations, {family:<16} {len(off):>3} runs: mean {statistics.mean(off):4.0%},"
            f" median {statistics.median(off):4.0%}, by the cap {statistics.mean(by_cap):4.0%};"
            f" {statistics.mean(inside):4.0%} in the band"
        )
        together += off if family != UNFORESEEN else []
    print(f"one estimate: {1e3 * spent_s / count:.0f} ms of CPU")
    return together


def training_run() -> None:
    """Train the example; for each target, print the estimate at half of the steps."""
    spec = importlib.util.spec_from_file_location("example_train", EXAMPLE)
    assert spec is not None  # noqa: S101 - the file is a part of the checkout
    assert spec.loader is not None  # noqa: S101 - the same
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    state = train.fresh(1)
    teacher = np.random.default_rng(7).normal(size=(train.FEATURES, train.CLASSES))
    losses = [train.train(state, teacher) for _ in range(STEPS)]
    means = np.array(losses).reshape(-1, AVERAGED).mean(axis=1).tolist()
    points = [MetricPoint(AVERAGED * at, loss) for at, loss in enumerate(means, 1)]
    for part in (0.4, 0.6, 0.8, 1.0):
        target = min(means[: int(part * len(means))])
        stopped = next(point.iteration for point in points if point.metric <= target)
        seen = [point for point in points if 2 * point.iteration <= stopped]
        answer = estimate_stop(seen, StopCriterion(target, STEPS, lower_is_better=True))
        amount = answer.iterations.amount
        print(
            f"examples/train.py to a loss of {target:.4f}, cap {STEPS:,}: stops after {stopped:,}"
            f" steps, estimated half way {amount:,} ({amount / stopped - 1:+.0%};"
            f" band {answer.low:,} to {answer.high:,})"
        )


def main() -> None:
    """Print all figures and the goals; docs/estimation.md explains misses."""
    speeds()
    together = iterations()
    print(
        f"all but {UNFORESEEN}: mean {statistics.mean(together):.1%},"
        f" median {statistics.median(together):.1%} of {len(together)} runs"
    )
    training_run()
    print(f"goals: speeds {GOAL_SPEED:.0%} on average, durations {GOAL_DURATION:.0%} at half")


if __name__ == "__main__":
    main()
