"""UniSched's estimator: interruptions (3), speeds (2), and moving averages."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.averages import RECENT, Average, add_report
from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.durations import (
    expected_interruptions,
    history_estimate,
    interruption_variance,
)
from evenshare_core.estimation.speeds import (
    HUBER,
    MEASURED_ERROR,
    MODEL_ERROR,
    Law,
    MeasuredIteration,
    fit_speeds,
)
from evenshare_core.estimation.values import estimate_of, least_sure
from evenshare_core.units import MICROSECOND_NS
from tests.papers.estimation_data import held_out_errors, profiled_errors

LEASES = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, 90)))


def chances(n: int, m: int) -> dict[int, Fraction]:
    """Return the weights of (3), as printed."""
    return {
        k: Fraction(comb(n - 1, k) * comb(m - n + 1, k + 1), comb(m, n))
        for k in range(min(n - 1, m - n) + 1)
    }


class TestGoldenCase4:
    @pytest.mark.parametrize(
        ("n", "m", "expected"),
        [(1, 5, Fraction(0)), (4, 4, Fraction(0)), (2, 3, Fraction(1, 3))],
    )
    def test_interruptions_match_sum(self, n: int, m: int, expected: Fraction) -> None:
        assert expected_interruptions(n, m) == expected

    def test_weights_match(self) -> None:
        assert chances(2, 3) == {0: Fraction(2, 3), 1: Fraction(1, 3)}


class TestInterruptions:
    @given(LEASES)
    def test_closed_form_matches_sum(self, leases: tuple[int, int]) -> None:
        weights = chances(*leases)
        assert sum(weights.values()) == 1
        mean = sum((k * weight for k, weight in weights.items()), Fraction(0))
        assert expected_interruptions(*leases) == mean
        square = sum((k * k * weight for k, weight in weights.items()), Fraction(0))
        assert interruption_variance(*leases) == square - mean**2

    @pytest.mark.parametrize(("n", "m"), [(3, 2), (1, 0), (0, 0), (0, 7)])
    def test_are_zero_without_slack_or_work(self, n: int, m: int) -> None:
        assert expected_interruptions(n, m) == interruption_variance(n, m) == 0

    def test_rejects_invalid_leases(self) -> None:
        with pytest.raises(ValueError, match="leases"):
            expected_interruptions(-1, 3)


class TestEstimate:
    def test_source_is_least_certain_part(self) -> None:
        sources = [EstimateSource.MEASURED, EstimateSource.CAP, EstimateSource.FITTED]
        assert least_sure(sources) is EstimateSource.CAP

    def test_history_estimate_is_median(self) -> None:
        runs = history_estimate([100, 110, 90, 400, 100])
        assert (runs.amount, runs.source) == (100, EstimateSource.HISTORY)
        assert 150 < runs.error_milli < 170
        assert history_estimate([100]).error_milli == 1000
        assert history_estimate([100, 100]).error_milli >= 50

    def test_rejects_negative_or_missing_amounts(self) -> None:
        with pytest.raises(ValueError, match="amount"):
            estimate_of(-1, 0, EstimateSource.FITTED)
        with pytest.raises(ValueError, match="amounts"):
            history_estimate([])


def measured(
    gpus: int, time_us: int, *, several: bool = False, count: int = 1
) -> MeasuredIteration:
    return MeasuredIteration(gpus, several, time_us, count)


PROFILE = [measured(1, 100_000), measured(2, 108_000), measured(2, 130_000, several=True)]


class TestSpeeds:
    def test_fit_matches_closed_form(self) -> None:
        model = fit_speeds(PROFILE)
        assert model.comp_us == pytest.approx(100_000)
        assert (model.t1_us, model.t2_us) == pytest.approx((8_000, 30_000))
        assert model.fitted(8, several_nodes=False).amount == 156_000
        assert model.fitted(16, several_nodes=True).amount == 550_000
        assert model.fitted(8, several_nodes=False).source is EstimateSource.FITTED

    @given(st.permutations(PROFILE), st.sampled_from(Law))
    def test_ignore_row_order(self, rows: list[MeasuredIteration], law: Law) -> None:
        assert fit_speeds(rows, law) == fit_speeds(PROFILE, law)

    @given(
        st.sampled_from(Law),
        st.integers(1_000, 10**6), st.integers(0, 10**5), st.integers(0, 10**6),
        st.lists(st.tuples(st.integers(2, 16), st.booleans()), max_size=6),
    )  # fmt: skip
    def test_predict_speeds_that_follow_law(
        self, law: Law, comp: int, t1: int, t2: int, more: list[tuple[int, bool]]
    ) -> None:
        """Iteration times are rounded to microseconds, so the tolerance is one per step."""

        def exact(gpus: int, several: bool) -> float:
            return comp + (t2 if several else t1) * law.steps(gpus)

        shapes = [(1, False), (2, False), (2, True), *more]
        rows = [measured(n, round(exact(n, s)), several=s) for n, s in shapes]
        model = fit_speeds(rows, law)
        for gpus, several in ((1, False), (3, True), (4, False), (16, True)):
            answer = model.fitted(gpus, several_nodes=several).amount
            assert answer == pytest.approx(exact(gpus, several), abs=3 * gpus, rel=1e-6)

    def test_parts_are_never_negative(self) -> None:
        """Two GPUs are faster than one, so the communication time is estimated as 0."""
        model = fit_speeds([measured(1, 100_000), measured(2, 90_000)])
        assert model.t1_us == 0
        assert 90_000 < model.comp_us < 100_000

    def test_fit_resists_outlier(self) -> None:
        law = [measured(n, 100_000 + 5_000 * (n - 1)) for n in (1, 2, 3, 4, 6, 8)]
        off = fit_speeds([*law, measured(4, 400_000)])
        assert off.fitted(16, several_nodes=False).amount == pytest.approx(175_000, rel=0.05)

    def test_fit_uses_huber_weights_and_residual_error(self) -> None:
        """Weighted residuals sum to 0; residuals per degree of freedom scale the error."""
        model = fit_speeds([*[measured(1, 1_000)] * 3, measured(1, 1_500)])
        error = sqrt(MODEL_ERROR**2 + MEASURED_ERROR**2)
        near, far = 1 / (1_000 * error), 1 / (1_500 * error)
        comp = 1_000 + HUBER * far / (3 * near**2)
        assert model.comp_us == pytest.approx(comp)
        off, away = (comp - 1_000) * near, (1_500 - comp) * far
        precision = 3 * near**2 + HUBER / away * far**2
        squares = 3 * off**2 + HUBER * away
        assert model.covariance[0][0] == pytest.approx(squares / (4 - 1) / precision)

    def test_error_grows_with_gpus(self) -> None:
        model = fit_speeds(PROFILE)
        errors = [model.fitted(n, several_nodes=True).error_milli for n in (4, 8, 16)]
        assert errors == sorted(errors)
        assert errors[-1] > 500

    def test_reject_unmeasured_shape(self) -> None:
        model = fit_speeds(PROFILE[:2])
        with pytest.raises(ValueError, match="several nodes"):
            model.fitted(4, several_nodes=True)
        assert fit_speeds(PROFILE[:1]).fitted(1, several_nodes=False).amount == 100_000

    @pytest.mark.parametrize("rows", [[], [measured(2, 100)], [measured(2, 5), measured(2, 6)]])
    def test_reject_rows_without_computation_time(self, rows: list[MeasuredIteration]) -> None:
        with pytest.raises(ValueError, match="rows"):
            fit_speeds(rows)

    @pytest.mark.parametrize(
        "wrong",
        [(0, False, 5), (1, False, 0), (1, True, 5), (2, False, 5, 0), (2, False, 5, 1, -1)],
    )
    def test_reject_invalid_measurements(self, wrong: tuple[int, bool, int]) -> None:
        with pytest.raises(ValueError, match=r"gpus|several_nodes|spread_us"):
            MeasuredIteration(*wrong)


class TestGavelThroughputs:
    """The error exceeds the 5 % that the paper reports for its own cluster (docs/estimation.md)."""

    @pytest.mark.parametrize(
        ("law", "one_node", "several_nodes"), [(Law.LINEAR, 0.40, 0.78), (Law.RING, 0.19, 0.11)]
    )
    def test_profile_error_exceeds_5_percent(
        self, law: Law, one_node: float, several_nodes: float
    ) -> None:
        for several, mean in ((False, one_node), (True, several_nodes)):
            errors = [abs(e.error) for e in profiled_errors(law) if e.several_nodes is several]
            assert len(errors) >= 110
            assert sum(errors) / len(errors) == pytest.approx(mean, abs=0.01)

    @pytest.mark.parametrize(
        ("law", "one_node", "several_nodes"), [(Law.LINEAR, 0.25, 0.30), (Law.RING, 0.15, 0.08)]
    )
    def test_leave_one_out_error_exceeds_5_percent(
        self, law: Law, one_node: float, several_nodes: float
    ) -> None:
        for several, mean in ((False, one_node), (True, several_nodes)):
            errors = [abs(e.error) for e in held_out_errors(law) if e.several_nodes is several]
            assert sum(errors) / len(errors) == pytest.approx(mean, abs=0.01)

    @pytest.mark.parametrize("law", Law)
    def test_bands_contain_80_percent_of_throughputs(self, law: Law) -> None:
        """80 % of throughputs should be within the error stated with the estimate."""
        inside = [error.is_in_band for error in profiled_errors(law)]
        assert sum(inside) / len(inside) > 0.8


def reported(times_us: list[int]) -> Average:
    average = Average()
    for time_us in times_us:
        average, _ = add_report(average, time_us * MICROSECOND_NS)
    return average


def noisy(mean_us: float, count: int, seed: int, spread: float = 0.03) -> list[int]:
    draw = random.Random(seed)  # noqa: S311 - seeded noise, not a secret
    return [max(1, round(draw.gauss(mean_us, spread * mean_us))) for _ in range(count)]


class TestReportAverage:
    def test_is_measurement_for_held_gpus(self) -> None:
        """Measurements of running jobs replace estimates from the profile."""
        reports = reported(noisy(250_000, 50, 6))
        seen = MeasuredIteration.from_average(8, reports, several_nodes=True)
        assert (seen.gpus, seen.several_nodes) == (8, True)
        assert seen.time_us == pytest.approx(250_000, rel=0.03)
        assert seen.spread_us == pytest.approx(7_500, rel=0.4)

    def test_count_is_limited_to_effective_reports(self) -> None:
        few, many = (
            MeasuredIteration.from_average(1, Average(count, 10**9, 10**7), several_nodes=False)
            for count in (9, 1000)
        )
        assert (few.count, many.count) == (9, 2 * RECENT - 1)

    def test_rejects_empty_average(self) -> None:
        with pytest.raises(ValueError, match="gpus, time_us, count"):
            MeasuredIteration.from_average(1, Average(), several_nodes=False)
