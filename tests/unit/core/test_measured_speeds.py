"""Test speeds computed from times per iteration, and overclaims."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.averages import Average
from evenshare_core.domain.measured_speeds import (
    LEAST_REPORTS,
    MOST_RATIO,
    IterationTime,
    MeasuredSpeed,
    compare,
    measured_speeds,
    used_speedups,
)

NAMES = ("k80", "p100", "v100")


def time(kind: str, mean: int, *, gpus: int = 1, several: bool = False, reports: int = 9,
         deviation: int = 0) -> IterationTime:  # fmt: skip
    return IterationTime(kind, gpus, several, Average(reports, mean, deviation))


def speeds(*rows: IterationTime, **before: int) -> dict[str, int]:
    old = {kind: MeasuredSpeed(milli, 7, 9) for kind, milli in before.items()}
    return {kind: one.speed_milli for kind, one in measured_speeds(rows, old).items()}


class TestMeasuredSpeeds:
    def test_are_ratios_of_times_of_same_size_and_shape(self) -> None:
        assert speeds(time("k80", 4000), time("v100", 1000)) == {"k80": 1000, "v100": 4000}

    def test_require_two_types_of_same_shape(self) -> None:
        assert speeds(time("k80", 4000)) == {}
        assert speeds(time("k80", 4000), time("v100", 1000, gpus=2)) == {}
        assert speeds(time("k80", 4000, gpus=8), time("v100", 1, gpus=8, several=True)) == {}

    def test_require_enough_consistent_reports(self) -> None:
        few = time("v100", 1000, reports=LEAST_REPORTS - 1)
        wide = time("v100", 1000, deviation=101)
        assert speeds(time("k80", 4000), few) == speeds(time("k80", 4000), wide) == {}
        enough = time("v100", 1000, reports=LEAST_REPORTS, deviation=100)
        assert speeds(time("k80", 4000), enough) == {"k80": 1000, "v100": 4000}

    def test_other_shapes_add_missing_types(self) -> None:
        rows = (
            time("k80", 4000), time("v100", 1000),
            time("p100", 100, gpus=4), time("v100", 50, gpus=4),
        )  # fmt: skip
        assert speeds(*rows) == {"k80": 1000, "p100": 2000, "v100": 4000}

    def test_keep_previous_speeds_of_other_types(self) -> None:
        rows = (time("k80", 6000), time("v100", 1000))
        assert speeds(*rows, k80=1000, p100=2000, v100=4000) == {
            "k80": 1000, "p100": 2000, "v100": 6000,
        }  # fmt: skip

    def test_keep_previous_speed_if_difference_is_small(self) -> None:
        assert speeds(time("k80", 4079), time("v100", 1000), k80=1000, v100=4000)["v100"] == 4000
        assert speeds(time("k80", 4081), time("v100", 1000), k80=1000, v100=4000)["v100"] == 4081
        assert speeds(k80=1000, v100=4000) == {"k80": 1000, "v100": 4000}

    def test_ignore_implausible_ratio(self) -> None:
        assert speeds(time("k80", 1_001_000), time("v100", 1000)) == {}
        assert speeds(time("k80", 1_000_000), time("v100", 1000))["v100"] == 1_000_000

    @given(
        st.lists(
            st.builds(
                time, st.sampled_from(NAMES), st.integers(1, 10**12),
                gpus=st.sampled_from((1, 2, 8)), several=st.booleans(),
            ),
            max_size=12,
        ),
        st.randoms(use_true_random=False),
    )  # fmt: skip
    def test_are_independent_of_row_order(self, rows: list[IterationTime], chance: Random) -> None:
        once = list({row[:3]: row for row in rows}.values())
        mixed = list(once)
        chance.shuffle(mixed)
        assert measured_speeds(once, {}) == measured_speeds(mixed, {})


class TestUsedSpeedups:
    def test_are_declared_values_without_measured_ratio(self) -> None:
        declared = {"k80": 1000, "v100": 4810}
        assert used_speedups(declared, {}) == declared
        assert used_speedups(declared, {"k80": MeasuredSpeed(1000, 0, 9)}) == declared

    def test_measured_values_replace_declared_ones(self) -> None:
        declared = {"k80": 1000, "p100": 3000, "v100": 9000}
        measured = {"k80": MeasuredSpeed(1000, 0, 9), "v100": MeasuredSpeed(4000, 0, 9)}
        assert used_speedups(declared, measured) == {"k80": 1000, "p100": 3000, "v100": 4000}

    def test_mixed_values_are_bounded(self) -> None:
        declared = {"k80": 1000, "p100": 1000, "v100": 10**6}
        measured = {"k80": MeasuredSpeed(10**6, 0, 9), "p100": MeasuredSpeed(1000, 0, 9)}
        assert used_speedups(declared, measured) == {"k80": 10**6, "p100": 1000, "v100": 10**6}

    def test_ignore_measured_types_that_are_not_declared(self) -> None:
        measured = {"k80": MeasuredSpeed(1000, 0, 9), "v100": MeasuredSpeed(4000, 0, 9)}
        assert used_speedups({"v100": 1000, "p100": 2000}, measured) == {"v100": 1000, "p100": 2000}

    def test_rescale_to_slowest_type(self) -> None:
        measured = {"k80": MeasuredSpeed(4000, 0, 9), "v100": MeasuredSpeed(1000, 0, 9)}
        assert used_speedups({"k80": 1000, "v100": 2000}, measured) == {"k80": 4000, "v100": 1000}

    @given(
        st.dictionaries(st.sampled_from(NAMES), st.integers(1000, 10**6), min_size=1),
        st.dictionaries(st.sampled_from(NAMES), st.integers(1000, 10**6)),
    )
    def test_keep_declared_types_and_stay_within_bounds(
        self, declared: dict[str, int], measured: dict[str, int]
    ) -> None:
        rows = {kind: MeasuredSpeed(milli, 0, 9) for kind, milli in measured.items()}
        used = used_speedups(declared, rows)
        assert used.keys() == declared.keys()
        assert min(used.values()) == 1000
        assert max(used.values()) <= 1000 * MOST_RATIO


class TestComparison:
    def test_detects_overclaim_beyond_spread(self) -> None:
        declared = {"k80": 1000, "p100": 2100, "v100": 8000}
        measured = {
            "k80": MeasuredSpeed(1000, 30, 9),
            "p100": MeasuredSpeed(2000, 40, 9),
            "v100": MeasuredSpeed(4000, 10, 9),
        }
        k80, p100, v100 = compare(declared, measured)
        assert (k80.excess_milli, k80.is_overclaim) == (0, False)
        assert (p100.excess_milli, p100.tolerance_milli, p100.is_overclaim) == (50, 70, False)
        assert (v100.declared_milli, v100.measured_milli) == (8000, 4000)
        assert (v100.excess_milli, v100.tolerance_milli, v100.is_overclaim) == (1000, 50, True)

    def test_ignores_understatement(self) -> None:
        measured = {"k80": MeasuredSpeed(1000, 0, 9), "v100": MeasuredSpeed(9000, 0, 9)}
        assert not any(row.is_overclaim for row in compare({"k80": 1000, "v100": 4000}, measured))

    def test_is_empty_without_measured_ratio(self) -> None:
        assert compare({"k80": 1000, "v100": 4000}, {"k80": MeasuredSpeed(1000, 0, 9)}) == ()
