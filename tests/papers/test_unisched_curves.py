"""UniSched's estimator of training iterations: learning curves after Domhan et al. 2015."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.curves import (
    FEWEST_POINTS,
    StopEstimate,
    estimate_stop,
)
from evenshare_core.estimation.durations import expected_interruptions
from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from evenshare_core.estimation.families import FAMILIES, fit_curve
from evenshare_core.estimation.values import Estimate
from evenshare_core.units import MINUTE_US, SECOND_US
from tests.papers.estimation_data import INSIDE, OUTSIDE, UNFORESEEN, DrawnRun, drawn_runs
from tests.patience import some

SEEDS = range(100, 106)  # the weights were chosen with other seeds
CAP = 5000
CORE = Path(__file__).resolve().parents[2] / "core" / "src"


def points(metrics: list[float], every: int = 100) -> list[MetricPoint]:
    return [MetricPoint(every * place, metric) for place, metric in enumerate(metrics, 1)]


def loss(x: float) -> float:
    return 0.2 + 2.0 * float(np.power(x, -0.7))


def rising(count: int) -> list[MetricPoint]:
    return points([0.9 - 0.6 * float(np.exp(-x / 12)) for x in range(1, count + 1)])


class TestIterationCap:
    @pytest.mark.parametrize("count", range(FEWEST_POINTS))
    def test_is_returned_for_few_evaluations(self, count: int) -> None:
        answer = estimate_stop(rising(count), StopCriterion(0.85, CAP))
        assert (answer.iterations.amount, answer.iterations.source) == (CAP, EstimateSource.CAP)
        assert f"{count} evaluations are too few" in answer.note
        assert answer.members == ()

    def test_is_returned_if_target_is_unreachable(self) -> None:
        answer = estimate_stop(rising(30), StopCriterion(0.99, CAP))
        assert (answer.iterations.amount, answer.iterations.source) == (CAP, EstimateSource.CAP)
        assert "with chance 0.0" in answer.note

    def test_is_returned_once_reached(self) -> None:
        answer = estimate_stop(rising(30), StopCriterion(0.99, 3000))
        assert (answer.iterations.amount, answer.note) == (3000, "the cap was reached")

    @settings(max_examples=some())
    @given(
        st.lists(st.floats(-10, 10), max_size=12),
        st.floats(-10, 10), st.integers(1, 10**7), st.booleans(), st.integers(1, 1000),
    )  # fmt: skip
    def test_bounds_estimate_for_any_observations(
        self, metrics: list[float], target: float, cap: int, less: bool, every: int
    ) -> None:
        answer = estimate_stop(points(metrics, every), StopCriterion(target, cap, less))
        assert 0 <= answer.low <= answer.iterations.amount <= answer.high <= cap
        assert list(answer.chances) == sorted(answer.chances)
        assert all(0 <= chance <= 1 + 1e-9 for chance in answer.chances)
        weights = sum(weight for _, weight in answer.members)
        assert weights == pytest.approx(1 if answer.members else 0)

    @pytest.mark.parametrize("seed", [239, 299, 1, 2, 3, 4])
    def test_chances_are_finite_for_sparse_noisy_metrics(self, seed: int) -> None:
        """No intermediate value overflows; regression test for the first two seeds."""
        draw = np.random.default_rng(seed)
        places = np.cumsum(draw.integers(1, 10 ** draw.integers(1, 6), size=12)).tolist()
        metrics = draw.normal(size=12).tolist()
        target = min(metrics) - 1 if seed % 2 else max(metrics) + 1
        seen = [MetricPoint(at, metric) for at, metric in zip(places, metrics, strict=True)]
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            answer = estimate_stop(seen, StopCriterion(target, 10**7, bool(seed % 2)))
        assert np.isfinite(answer.chances).all()


class TestTarget:
    def test_reached_target_is_measured(self) -> None:
        answer = estimate_stop(rising(40), StopCriterion(0.6, CAP))
        first = next(point for point in rising(40) if point.metric >= 0.6)
        assert answer.iterations == Estimate(first.iteration, 0, EstimateSource.MEASURED)

    def test_supports_loss_metric(self) -> None:
        """The curve 2 x^-0.7 reaches 0.1 after 72.1 evaluations."""
        seen = points([loss(x) for x in range(1, 31)])
        answer = estimate_stop(seen, StopCriterion(0.3, 20_000, lower_is_better=True))
        assert answer.iterations.amount == pytest.approx(7300, abs=100)
        assert answer.iterations.source is EstimateSource.FITTED
        assert answer.members[0][0] in {"pow3", "pow4", "mmf"}

    def test_noise_can_reach_target_before_curve(self) -> None:
        """The curve is flat just below the target, so noise may lift any evaluation to it."""
        draw = np.random.default_rng(5)
        seen = [0.9 - 0.3 * 0.5**x + 0.01 * float(draw.normal()) for x in range(60)]
        target = max(seen) + 0.004
        answer = estimate_stop(points(seen), StopCriterion(target, 10**6))
        assert 6000 < answer.iterations.amount < 6000 + 100 * 500

    def test_exact_curve_reaches_target_on_time(self) -> None:
        """The curve 0.9 - 0.6 exp(-x / 12) reaches 0.88 after 40.8 evaluations."""
        answer = estimate_stop(rising(20), StopCriterion(0.88, CAP))
        assert answer.iterations.amount == 4100
        assert (answer.low, answer.high) == (4100, 4100)
        chances = dict(zip(answer.steps, answer.chances, strict=True))
        assert chances.get(4000, 0.0) < 0.01
        assert chances[4100] > 0.99

    def test_accepts_uneven_and_many_points(self) -> None:
        places = [*range(20, 1500, 50), *range(1500, 2000, 7)]
        seen = [MetricPoint(at, 0.9 - 0.6 * float(np.exp(-at / 1200))) for at in places]
        answer = estimate_stop(seen, StopCriterion(0.88, CAP))
        assert answer.iterations.amount == pytest.approx(4081, rel=0.01)
        many = [MetricPoint(at, 0.9 - 0.6 * float(np.exp(-at / 1200))) for at in range(1, 2000)]
        answer = estimate_stop(many, StopCriterion(0.88, CAP))
        assert answer.iterations.amount == pytest.approx(4081, rel=0.01)


class TestStopEstimate:
    def test_is_deterministic(self) -> None:
        run = next(drawn_runs("mmf", SEEDS))
        assert run.at_half() == run.at_half()

    @pytest.mark.parametrize(
        "wrong",
        [
            [MetricPoint(0, 0.5)],
            [MetricPoint(2, 0.5), MetricPoint(2, 0.6)],
            [MetricPoint(1, float("nan"))],
        ],
    )
    def test_rejects_invalid_points(self, wrong: list[MetricPoint]) -> None:
        with pytest.raises(ValueError, match=r"iteration|metric"):
            estimate_stop(wrong, StopCriterion(0.9, CAP))

    @pytest.mark.parametrize(("target", "cap"), [(float("inf"), 5), (0.5, 0)])
    def test_rejects_invalid_target_or_cap(self, target: float, cap: int) -> None:
        with pytest.raises(ValueError, match=r"target|cap"):
            StopCriterion(target, cap)


class TestCurveFamily:
    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.name))
    def test_fits_its_own_curve(self, family: object, sign: int) -> None:
        family = next(row for row in FAMILIES if row is family)
        x = np.arange(1.0, 41.0)
        bounds = family.bounds(40.0)
        theta = [low + 0.55 * (high - low) for low, high in bounds]
        head = [0.3, 0.7] if family.has_limit else [0.7]
        y = family.values(np.array([*head, *theta]), x, sign)
        assert (np.diff(y) >= 0).all()
        fit = fit_curve(family, x, y, sign)
        rest = family.values(fit.parameters, x, sign) - y
        assert float(np.abs(rest).max()) < 2e-3 * float(np.ptp(y))


class TestWithoutScipy:
    @pytest.mark.parametrize("module", ["curves", "families"])
    def test_curves_error_shows_install_command(self, module: str) -> None:
        text = f"import sys; sys.modules['scipy'] = None; import evenshare_core.estimation.{module}"
        done = python(text)
        assert done.returncode == 1
        assert "pip install 'evenshare-core[estimation]'" in done.stderr

    def test_other_modules_import(self) -> None:
        modules = "values, speeds, durations"
        text = f"from evenshare_core.estimation import {modules}"
        assert python(f"import sys; sys.modules['scipy'] = None; {text}").stderr == ""


def python(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], check=False, capture_output=True, text=True, cwd=CORE
    )


@lru_cache
def at_half(family: str) -> tuple[tuple[DrawnRun, StopEstimate], ...]:
    return tuple((run, run.at_half()) for run in drawn_runs(family, SEEDS))


def errors(*families: str) -> list[float]:
    """Return the relative errors of durations estimated after half of the iterations."""
    each = []
    for family in families:
        for run, answer in at_half(family):
            each.append(abs(duration(answer.iterations.amount) / duration(run.stopped) - 1))
    return each


def duration(iterations: int) -> float:
    """Return a job's duration: deadline in two days, 10-minute leases, 20 s per interruption."""
    work_us, lease_us = iterations * SECOND_US, 10 * MINUTE_US
    leases = -(-work_us // lease_us)
    count = expected_interruptions(leases, 2 * 24 * 60 * MINUTE_US // lease_us)
    return float(work_us + count * 20 * SECOND_US)


class TestDurationErrorAtHalfTraining:
    """The goal is an average error of 10 %; results with more seeds are in docs/estimation.md."""

    def test_is_below_10_percent_for_ensemble_families(self) -> None:
        families = [family for family in INSIDE if family != "pow3"]
        assert statistics.mean(errors(*families)) < 0.10
        assert statistics.median(errors(*INSIDE)) < 0.06

    def test_exceeds_10_percent_for_power_laws(self) -> None:
        """Counterexample: at the flat end, noise decides when the curve reaches the target."""
        assert statistics.mean(errors("pow3")) > 0.10

    def test_is_10_to_20_percent_for_other_families(self) -> None:
        assert 0.10 < statistics.mean(errors(*OUTSIDE)) < 0.20

    def test_exceeds_50_percent_after_learning_rate_drop(self) -> None:
        """Counterexample: the curve changes after the drop, and no earlier point shows that."""
        assert statistics.mean(errors(UNFORESEEN)) > 0.5

    def test_bands_contain_80_percent_of_durations(self) -> None:
        """80 % of durations should be in the band, for curves that the ensemble can represent."""
        inside = [
            answer.low <= run.stopped <= answer.high
            for family in INSIDE
            for run, answer in at_half(family)
        ]
        assert sum(inside) / len(inside) >= 0.8
