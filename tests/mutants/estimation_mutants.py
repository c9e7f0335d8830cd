"""List errors in estimates that the tests must detect, with a change for each."""

from __future__ import annotations

from tests.mutants.mutant import pure

ESTIMATION = "core/src/evenshare_core/estimation"
ESTIMATOR_TESTS = "tests/papers/test_unisched_estimator.py"
CURVE_TESTS = "tests/papers/test_unisched_curves.py"

ESTIMATION_MUTANTS = (
    pure(
        "the_first_lease_is_interrupted_too",
        f"{ESTIMATION}/durations.py",
        "Fraction((leases - 1) * (until_deadline - leases), until_deadline)",
        "Fraction(leases * (until_deadline - leases), until_deadline)",
        f"{ESTIMATOR_TESTS}::TestGoldenCase4",
    ),
    pure(
        "error_of_fit_ignores_difference_of_laws",
        f"{ESTIMATION}/speeds.py",
        "deviation = sqrt(variance + apart**2)",
        "deviation = sqrt(variance)",
        f"{ESTIMATOR_TESTS}::TestSpeeds::test_error_grows_with_gpus",
    ),
    pure(
        "error_of_average_counts_all_reports",
        f"{ESTIMATION}/speeds.py",
        "count = min(average.reports, 2 * RECENT - 1)",
        "count = average.reports",
        f"{ESTIMATOR_TESTS}::TestReportAverage",
    ),
    pure(
        "only_last_evaluation_counts_as_missed",
        f"{ESTIMATION}/curves.py",
        "missed = np.cumsum(several * log_ndtr(short))",
        "missed = several * log_ndtr(short)",
        f"{CURVE_TESTS}::TestTarget",
    ),
    pure(
        "a_target_out_of_reach_is_met_just_before_the_cap",
        f"{ESTIMATION}/curves.py",
        "return min(cap, ceil(steps[place])) if place < len(steps) else cap",
        "return min(cap, ceil(steps[min(place, len(steps) - 1)])) - 1",
        f"{CURVE_TESTS}::TestIterationCap",
    ),
)
