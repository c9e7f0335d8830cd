"""Test estimates of jobs against numbers computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.averages import RECENT, Average, add_report
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.measured_speeds import IterationTime
from evenshare_core.estimation.jobs import (
    JobClaims,
    PastRun,
    SizeRecord,
    TypeRecord,
    WorkEstimate,
    estimate_work,
    iteration_time,
    job_estimate,
    settle,
    size_record,
)
from evenshare_core.estimation.values import Estimate
from evenshare_core.units import HOUR_US, MILLISECOND_NS, ONE_MILLI, SECOND_US

SPEEDS = (("k80", 1000), ("v100", 4000))


def time(
    kind: str, milliseconds: int, *, gpus: int = 1, several: bool = False, reports: int = 20
) -> IterationTime:
    return IterationTime(kind, gpus, several, Average(reports, milliseconds * MILLISECOND_NS))


def known(claims: JobClaims, record: TypeRecord, gpus: int = 1) -> WorkEstimate:
    found = estimate_work(claims, size_record(record, gpus))
    assert found is not None
    return found


class TestCurveEstimate:
    """The job type takes 100 ms per iteration, known to 1 %, and at most 1,000 iterations."""

    RECORD = TypeRecord(SPEEDS, (time("k80", 100),))

    def by(self, stop: Estimate | None, declared_s: int | None = None) -> WorkEstimate:
        declared_us = None if declared_s is None else declared_s * SECOND_US
        return known(JobClaims(1000, True, declared_us, stop), self.RECORD)

    def test_combines_iterations_and_errors_of_curve_and_time(self) -> None:
        found = self.by(Estimate(600, 75, EstimateSource.FITTED))
        assert found.work.amount == 60 * SECOND_US
        # The error is sqrt(75^2 + 10^2), rounded up.
        assert (found.work.source, found.work.error_milli) == (EstimateSource.FITTED, 76)

    def test_has_only_error_of_time_if_target_was_met(self) -> None:
        found = self.by(Estimate(600, 0, EstimateSource.MEASURED))
        assert (found.work.source, found.work.error_milli) == (EstimateSource.MEASURED, 10)

    def test_is_limited_by_cap(self) -> None:
        assert self.by(Estimate(1500, 75, EstimateSource.FITTED)).work.amount == 100 * SECOND_US

    def test_cap_is_used_without_usable_forecast(self) -> None:
        for stop in (None, Estimate(1000, 30, EstimateSource.CAP)):
            found = self.by(stop)
            assert found.work.amount == 100 * SECOND_US
            assert (found.work.source, found.work.error_milli) == (EstimateSource.CAP, ONE_MILLI)

    def test_yields_to_declared_estimate_with_smaller_error(self) -> None:
        past = {1: (PastRun(50 * SECOND_US, 40 * SECOND_US),)}
        record = TypeRecord(SPEEDS, (time("k80", 100),), runs=past)
        for error, source in ((200, EstimateSource.FITTED), (300, EstimateSource.DECLARED)):
            stop = Estimate(600, error, EstimateSource.FITTED)
            found = known(JobClaims(1000, True, 90 * SECOND_US, stop), record)
            assert found.work.source is source

    def test_zero_error_curve_is_still_fitted(self) -> None:
        found = self.by(Estimate(600, 0, EstimateSource.FITTED))
        assert (found.work.source, found.work.error_milli) == (EstimateSource.FITTED, 10)

    @pytest.mark.parametrize(
        ("declared_s", "source"), [(100, EstimateSource.DECLARED), (101, EstimateSource.FITTED)]
    )
    def test_does_not_yield_to_declared_estimate_above_cap(
        self, declared_s: int, source: EstimateSource
    ) -> None:
        """The declared estimate has a smaller error, but 1,000 iterations take only 100 s."""
        past = {1: (PastRun(50 * SECOND_US, 40 * SECOND_US),)}
        record = TypeRecord(SPEEDS, (time("k80", 100),), runs=past)
        stop = Estimate(600, 300, EstimateSource.FITTED)
        claims = JobClaims(1000, True, declared_s * SECOND_US, stop)
        assert known(claims, record).work.source is source


class TestIterationEstimate:
    def test_multiplies_iterations_by_time_on_slowest_type(self) -> None:
        # 250 ms on a V100 are 1 s on a K80.
        record = TypeRecord(SPEEDS, (time("v100", 250),))
        found = known(JobClaims(3600), record)
        assert found.work.amount == HOUR_US
        assert (found.work.source, found.work.error_milli) == (EstimateSource.MEASURED, 10)
        assert found.basis == 20

    def test_is_fitted_for_unmeasured_size(self) -> None:
        # T_comp is 100 ms and T1 is 20 ms, so an iteration on four GPUs takes 160 ms by (2).
        record = TypeRecord(SPEEDS, (time("k80", 100), time("k80", 120, gpus=2)))
        found = known(JobClaims(1000), record, gpus=4)
        assert found.work.amount == 160 * SECOND_US
        assert found.work.source is EstimateSource.FITTED
        # The ring model gives 130 ms. The difference of the two models is part of the error.
        assert found.work.error_milli >= 187

    def test_prefers_measurement_at_same_size(self) -> None:
        rows = (time("k80", 100), time("k80", 120, gpus=2), time("v100", 50, gpus=4))
        found = known(JobClaims(1000), TypeRecord(SPEEDS, rows), gpus=4)
        assert (found.work.amount, found.work.source) == (200 * SECOND_US, EstimateSource.MEASURED)

    def test_uses_accepted_gpu_type(self) -> None:
        record = TypeRecord(SPEEDS, (time("k80", 110), time("v100", 25)))
        for kind, milliseconds in (("k80", 110), ("v100", 100)):
            size = size_record(record, 1, (kind,))
            assert size.iteration is not None
            assert size.iteration.time.amount == milliseconds * MILLISECOND_NS

    def test_few_reports_increase_error(self) -> None:
        errors = [
            known(JobClaims(9), TypeRecord(SPEEDS, (time("k80", 9, reports=n),))).work.error_milli
            for n in (1, 4, 5)
        ]
        assert errors == [100, 50, 10]

    def test_returns_none_if_only_other_size_was_measured(self) -> None:
        record = TypeRecord(SPEEDS, (time("k80", 100, gpus=4),))
        assert estimate_work(JobClaims(10), size_record(record, 8)) is None

    def test_returns_none_if_only_one_gpu_was_measured(self) -> None:
        record = TypeRecord(SPEEDS, (time("k80", 100),))
        assert estimate_work(JobClaims(10), size_record(record, 8)) is None

    def test_returns_none_without_record(self) -> None:
        assert estimate_work(JobClaims(10), None) is None
        assert estimate_work(JobClaims(10), size_record(TypeRecord(SPEEDS), 1)) is None

    def test_ignores_types_that_cannot_run_job(self) -> None:
        record = TypeRecord((("k80", 1000), ("v100", 0)), (time("v100", 10),))
        assert size_record(record, 1).iteration is None

    def test_rejects_zero_gpus(self) -> None:
        with pytest.raises(ValueError, match="gpus: must be at least 1"):
            size_record(TypeRecord(SPEEDS), 0)


class TestHistoryAndDeclaredEstimate:
    def test_is_median_of_past_runs_of_same_size(self) -> None:
        hours = (1, 2, 3, 4, 30)
        runs = tuple(PastRun(n * HOUR_US) for n in hours)
        record = TypeRecord(SPEEDS, runs={2: runs, 1: (PastRun(1),)})
        found = known(JobClaims(), record, gpus=2)
        # The spread is 1.4826 x 1 h, times sqrt(6 / 5) for a sixth run, divided by 3 h.
        assert found == WorkEstimate(found.work, 5)
        assert found.work.amount == 3 * HOUR_US
        assert found.work.error_milli == 542
        assert found.work.source is EstimateSource.HISTORY

    def test_declared_estimate_takes_precedence_over_history(self) -> None:
        record = TypeRecord(SPEEDS, runs={1: (PastRun(HOUR_US),)})
        found = known(JobClaims(declared_us=9), record)
        assert (found.work.amount, found.work.source) == (9, EstimateSource.DECLARED)
        assert found.work.error_milli == ONE_MILLI

    def test_declared_error_equals_error_of_past_declarations(self) -> None:
        # The estimates were wrong by +30 % and -40 %: the root of the mean square is 35.35 %.
        runs = {1: (PastRun(130, 100), PastRun(5)), 8: (PastRun(60, 100),)}
        found = known(JobClaims(declared_us=100), TypeRecord(SPEEDS, runs=runs))
        assert found.work.error_milli == 353

    def test_declared_estimate_is_kept_without_job_type(self) -> None:
        found = estimate_work(JobClaims(declared_us=100), None)
        assert found is not None
        assert found.work.amount == 100
        assert job_estimate(7, found, None) == JobEstimate(
            7, EstimateSource.DECLARED, ONE_MILLI, is_profiled=False
        )

    def test_uses_cap_of_metric_job_without_other_data(self) -> None:
        record = TypeRecord(SPEEDS, (time("k80", 1000),))
        found = known(JobClaims(60, has_metric=True), record)
        assert found.work.amount == 60 * SECOND_US
        assert (found.work.source, found.work.error_milli) == (EstimateSource.CAP, ONE_MILLI)

    @pytest.mark.parametrize(("seconds", "source"), [(59, "history"), (61, "cap")])
    def test_history_is_limited_by_cap(self, seconds: int, source: str) -> None:
        runs = {1: (PastRun(seconds * SECOND_US),)}
        record = TypeRecord(SPEEDS, (time("k80", 1000),), runs=runs)
        found = known(JobClaims(60, has_metric=True), record)
        assert found.work.amount == min(seconds, 60) * SECOND_US
        assert found.work.source == source


class TestOverheadAndSpread:
    def test_overhead_is_suspend_plus_resume_time(self) -> None:
        record = TypeRecord(
            SPEEDS, (time("k80", 100),), resume=Average(3, 700), suspend=Average(2, 50)
        )
        size = size_record(record, 1)
        assert job_estimate(7, known(JobClaims(10), record), size) == JobEstimate(
            7, EstimateSource.MEASURED, 10, 750, ONE_MILLI, True
        )

    def test_spread_is_ratio_of_multi_node_to_one_node_speed(self) -> None:
        rows = (time("k80", 100, gpus=2), time("k80", 125, gpus=2, several=True))
        assert size_record(TypeRecord(SPEEDS, rows), 2).spread_milli == 800
        # By (2): 100 + 20 on one node, 100 + 60 on two nodes. With two more GPUs it is 160 and 280.
        fitted = (
            time("k80", 100), time("k80", 120, gpus=2), time("k80", 160, gpus=2, several=True),
        )  # fmt: skip
        assert size_record(TypeRecord(SPEEDS, fitted), 4).spread_milli == 160 * ONE_MILLI // 280

    def test_spread_is_one_if_only_multi_node_was_measured(self) -> None:
        rows = (
            time("k80", 100), time("k80", 120, gpus=2), time("k80", 800, gpus=16, several=True),
        )  # fmt: skip
        size = size_record(TypeRecord(SPEEDS, rows), 16)
        assert size.iteration is not None
        assert size.iteration.time.source is EstimateSource.MEASURED
        assert size.spread_milli == ONE_MILLI


class TestSettle:
    def test_keeps_value_until_change_exceeds_2_percent(self) -> None:
        used = Average(40, 1000, 3)
        assert settle(used, Average(90, 1020, 3)) == used
        assert settle(used, Average(90, 1021, 3)) == Average(90, 1021, 3)
        assert settle(used, Average(90, 979, 3)) == Average(90, 979, 3)

    def test_updates_after_twice_as_many_reports(self) -> None:
        assert settle(Average(8, 1000, 9), Average(15, 1001, 3)) == Average(8, 1000, 9)
        assert settle(Average(8, 1000, 9), Average(16, 1001, 3)) == Average(16, 1001, 3)
        assert settle(Average(2, 1000, 9), Average(3, 1001, 3)) == Average(2, 1000, 9)
        assert settle(Average(4, 1000, 9), Average(5, 1001, 3)) == Average(5, 1001, 3)
        assert settle(Average(2 * RECENT, 1000, 9), Average(99, 1000)).reports == 2 * RECENT

    def test_restarted_average_is_used_after_enough_reports(self) -> None:
        used = Average(40, 1000, 3)
        assert settle(used, Average(4, 2000)) == used
        assert settle(used, Average(5, 2000)) == Average(5, 2000)

    def test_first_value_is_used_immediately(self) -> None:
        assert settle(Average(), Average()) == Average()
        assert settle(Average(), Average(1, 7)) == Average(1, 7)
        assert settle(Average(3, 7), Average()) == Average(3, 7)

    @given(st.lists(st.integers(900, 1100), min_size=1, max_size=80))
    def test_stays_close_to_newest_average(self, reports: list[int]) -> None:
        used = newest = Average()
        moves = 0
        for value in reports:
            newest, _ = add_report(newest, value)
            before, used = used, settle(used, newest)
            moves += used != before
        assert used.reports <= newest.reports
        if newest.reports >= RECENT:
            assert abs(used.mean - newest.mean) <= 20 + newest.mean // 50
        assert moves <= len(reports)


averages = st.builds(Average, st.integers(1, 40), st.integers(1, 10**13), st.integers(0, 10**12))
times = st.builds(
    IterationTime, st.sampled_from(["k80", "v100"]), st.integers(1, 64), st.booleans(), averages
).filter(lambda row: row.gpus > 1 or not row.several_nodes)
claims = st.builds(
    JobClaims, st.none() | st.integers(1, 10**9), st.booleans(), st.none() | st.integers(1, 10**15)
)
past = st.lists(
    st.builds(PastRun, st.integers(0, 10**15), st.none() | st.integers(1, 10**15)),
    min_size=1, max_size=9,
).map(tuple)  # fmt: skip


class TestInvariants:
    @given(
        st.lists(times, max_size=6), st.dictionaries(st.integers(1, 64), past, max_size=3),
        st.integers(1, 64), claims,
    )  # fmt: skip
    def test_estimate_is_integer_with_error_for_any_record(
        self, rows: list[IterationTime], runs: dict[int, tuple[PastRun, ...]], gpus: int,
        said: JobClaims,
    ) -> None:  # fmt: skip
        one_each = {(row.gpu_type, row.gpus, row.several_nodes): row for row in rows}
        record = TypeRecord(SPEEDS, tuple(one_each.values()), runs=runs)
        size = size_record(record, gpus)
        assert size == size_record(TypeRecord(SPEEDS, record.times[::-1], runs=runs), gpus)
        assert isinstance(size, SizeRecord)
        assert 1 <= size.spread_milli <= ONE_MILLI
        found = estimate_work(said, size)
        if found is None:
            return
        assert type(found.work.amount) is int
        assert found.work.error_milli >= 0
        if said.declared_us is not None and not said.has_metric:
            assert found.work.source in {"measured", "fitted", "declared"}

    def test_returns_none_if_shapes_were_measured_at_other_sizes(self) -> None:
        rows = (time("k80", 100, gpus=4), time("k80", 90, gpus=8, several=True))
        assert iteration_time(rows, 2, several_nodes=False) is None
