"""Test the count of idle GPU-time: exact sums over any cut, by day, and unknown never idle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.domain.instants import from_us
from scheduling.engine.executors.local_usage import GpuState, NodeUsage, SampledRow
from scheduling.engine.idle_samples import (
    GpuTime,
    HeldSamples,
    IdleSpan,
    count_days,
    idle_span,
    sampled_until,
)
from tests.patience import some

BEGIN_US = 1_900_000_000_000_000
S_US = 10**6


def row(end_s: float, *busy: int | None) -> SampledRow:
    return SampledRow(round(end_s * 1000), 0, None, None, busy, (None,) * len(busy))


def held(
    *nodes: Sequence[SampledRow], gpus: int = 1, end_s: int = 1000, scale: int = 1
) -> HeldSamples:
    usages = tuple(
        NodeUsage(1, rank, 4, gpus, GpuState.OK, None, tuple(rows))
        for rank, rows in enumerate(nodes)
    )
    end_us = BEGIN_US + end_s * S_US * scale
    return HeldSamples(1, BEGIN_US, end_us, scale, usages, (gpus,) * len(usages))


def total(samples: HeldSamples, after_s: float = 0, until_s: float = 10**6) -> GpuTime:
    days = count_days(samples, round(after_s * 1000), round(until_s * 1000)).values()
    return GpuTime(sum(day.known_us for day in days), sum(day.idle_us for day in days))


class TestCount:
    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            ([row(10, 0), row(20, 500)], GpuTime(20 * S_US, 10 * S_US)),
            ([row(10, 9), row(20, 10)], GpuTime(20 * S_US, 10 * S_US)),  # below 1 %
            ([row(10, None), row(20)], GpuTime()),  # unknown, so never idle
            ([row(10, 0), row(20, None), row(30, 0)], GpuTime(20 * S_US, 20 * S_US)),
            ([row(999, 0), row(1200, 0)], GpuTime(1000 * S_US, 1000 * S_US)),  # the lease ended
            ([row(0.001, 0)], GpuTime(1000, 1000)),
        ],
    )
    def test_of_a_gpu(self, rows: list[SampledRow], expected: GpuTime) -> None:
        assert total(held(rows)) == expected

    def test_counts_each_gpu(self) -> None:
        samples = held([row(10, 0, 800), row(20, 0, 0)], gpus=2)
        assert total(samples) == GpuTime(40 * S_US, 30 * S_US)

    def test_ignores_more_gpus_than_the_lease_holds(self) -> None:
        assert total(held([row(10, 900, 0, 0)], gpus=1)) == GpuTime(10 * S_US, 0)

    def test_is_in_pool_time(self) -> None:
        assert total(held([row(10, 0)], scale=60)) == GpuTime(600 * S_US, 600 * S_US)

    def test_splits_at_midnight(self) -> None:
        begin = from_us(BEGIN_US)
        to_midnight_s = 86_400 - (begin.hour * 3600 + begin.minute * 60 + begin.second)
        samples = held([row(to_midnight_s + 5, 0)], end_s=86_400)
        days = count_days(samples, 0, 10**9)
        assert days == {
            begin.date(): GpuTime(to_midnight_s * S_US, to_midnight_s * S_US),
            date.fromordinal(begin.date().toordinal() + 1): GpuTime(5 * S_US, 5 * S_US),
        }

    @settings(max_examples=some())
    @given(st.data())
    def test_adds_up_over_any_cut(self, data: st.DataObject) -> None:
        ends = sorted(data.draw(st.sets(st.integers(1, 5000), min_size=1, max_size=8)))
        level = st.none() | st.sampled_from([0, 9, 10, 700])
        rows = [row(end / 10, data.draw(level), data.draw(level)) for end in ends]
        samples = held(rows, gpus=2, scale=data.draw(st.sampled_from([1, 60, 3600])))
        cuts = [0, *sorted(data.draw(st.lists(st.integers(0, 6000), max_size=4))), 6000]
        parts = [total(samples, begin / 10, end / 10) for begin, end in pairwise(cuts)]
        assert GpuTime(*map(sum, zip(*parts, strict=True))) == total(samples)


class TestSpan:
    @pytest.mark.parametrize(
        ("nodes", "expected"),
        [
            ([[row(10, 900), row(20, 0), row(30, 0)]], (10, 30)),
            ([[row(10, 0), row(20, 10)]], None),
            ([[row(10, 0), row(20, 0), row(30)]], (0, 20)),  # the last figures are to come
            ([[row(10, 0), row(20), row(30)]], None),  # but only the last
            ([[row(10, 0), row(20, None), row(30, 0)]], (20, 30)),
            ([[row(10, 900), row(40, 0)], [row(20, 700), row(30, 0)]], (20, 30)),
            ([[row(40, 0)], [row(40, 50)]], None),
            ([[row(40, 0)], []], None),  # a node without samples is unknown
            ([], None),
        ],
    )
    def test_is_the_time_in_which_all_gpus_idle(
        self, nodes: list[list[SampledRow]], expected: tuple[int, int] | None
    ) -> None:
        span = expected and IdleSpan(*(BEGIN_US + second * S_US for second in expected))
        assert idle_span(held(*nodes)) == span

    def test_needs_all_gpus_of_a_node(self) -> None:
        assert idle_span(held([row(10, 0), row(20, 0)], gpus=2)) is None


@pytest.mark.parametrize(
    ("nodes", "expected_s"),
    [
        ([[row(10, 0), row(20, 0), row(30, 0)]], 20),
        ([[row(10, 0), row(20, 0)], [row(15, 0), row(25, 0)]], 10),
        ([[row(10, 0)]], 0),
        ([], 0),
        ([[row(2000, 0), row(2001, 0)]], 1000),
    ],
)
def test_last_sample_of_a_running_lease_is_left_out(
    nodes: list[list[SampledRow]], expected_s: int
) -> None:
    assert sampled_until(held(*nodes)) == expected_s * 1000
