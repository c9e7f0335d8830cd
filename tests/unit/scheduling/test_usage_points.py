"""Test a job's usage over its leases as one curve, with no sample hidden, invented or misplaced."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.executors.local_usage import GpuState, NodeUsage, SampledRow
from scheduling.engine.idle_samples import LeaseSamples
from scheduling.services.usage_points import (
    MIB,
    idle_since_us,
    join_points,
    lease_points,
    usage_points,
)

S_US = 1_000_000


def row(end_s: float, cpu_s: float, memory: int | None = None, *busy: int | None) -> SampledRow:
    used = tuple(None if one is None else one * 10 for one in busy)
    return SampledRow(int(end_s * 1000), int(cpu_s * 1000), memory, memory, busy, used)


def node(*rows: SampledRow, rank: int = 0) -> NodeUsage:
    return NodeUsage(1, rank, 4, 2, GpuState.OK, None, rows)


def samples(*nodes: NodeUsage, end_s: float = 1000, scale: int = 1, lease: int = 1) -> LeaseSamples:
    begin_us = lease * 10**10
    return LeaseSamples(lease, begin_us, begin_us + int(end_s * S_US * scale), scale, nodes)


@st.composite
def leases(draw: st.DrawFn) -> list[LeaseSamples]:
    return [
        samples(
            *(draw(nodes(rank)) for rank in range(draw(st.integers(0, 3)))),
            end_s=draw(st.integers(0, 60)),
            scale=draw(st.sampled_from([1, 60])),
            lease=lease + 1,
        )
        for lease in range(draw(st.integers(0, 4)))
    ]


@st.composite
def nodes(draw: st.DrawFn, rank: int = 0) -> NodeUsage:
    at = cpu = 0
    rows = []
    gpus = draw(st.integers(0, 2))
    for _ in range(draw(st.integers(0, 8))):
        at += draw(st.integers(1, 20_000))
        cpu += draw(st.integers(0, 40_000))
        memory = draw(st.none() | st.integers(0, 2**40))
        peak = None if memory is None else memory + draw(st.integers(0, 2**20))
        busy = tuple(draw(st.none() | st.integers(0, 1000)) for _ in range(gpus))
        used = tuple(draw(st.none() | st.integers(0, 80_000)) for _ in range(gpus))
        rows.append(SampledRow(at, cpu, memory, peak, busy, used))
    return node(*rows, rank=rank)


class TestLease:
    def test_has_point_per_sample(self) -> None:
        first, second = lease_points(samples(node(row(10, 5, 7, 500), row(20, 25, 9, None))))
        assert (first.cores, first.memory_bytes, first.busy) == (0.5, 7, 500)
        assert (second.cores, second.memory_bytes, second.busy) == (2.0, 9, None)
        assert (second.begin_us - first.begin_us, second.end_us - first.begin_us) == (
            10 * S_US, 20 * S_US,
        )  # fmt: skip

    def test_on_several_nodes_sums_use_and_takes_lowest_gpu(self) -> None:
        (point,) = lease_points(
            samples(node(row(10, 10, 7, 1000, 500)), node(row(10, 30, 9, 0, 900), rank=1))
        )
        assert (point.cores, point.memory_bytes) == (4.0, 16)
        assert (point.busy, point.busy_low) == (600, 0)
        assert point.gpu_bytes == pytest.approx(6000 * MIB)
        assert point.gpu_peak_bytes == 10_000 * MIB

    def test_splits_samples_taken_at_different_times(self) -> None:
        first, second = lease_points(
            samples(node(row(10, 0), row(20, 0)), node(row(5, 0), row(15, 20), rank=1))
        )
        assert (first.cores, second.cores) == (1.0, 1.0)

    def test_has_no_points_after_its_end(self) -> None:
        points = lease_points(samples(node(row(10, 10), row(40, 70)), end_s=25))
        assert [(point.begin_us % 10**10, point.end_us % 10**10) for point in points] == [
            (0, 10 * S_US), (10 * S_US, 25 * S_US),
        ]  # fmt: skip
        assert points[1].cores == 2.0

    def test_continues_after_first_node_ends(self) -> None:
        first = node(*(row(n, n, 7) for n in range(1, 101)))
        points = lease_points(
            samples(first, node(*(row(10 * n, 0, 9, 500) for n in range(1, 61)), rank=1))
        )
        assert len(points) == 60
        assert [(one.memory_bytes, one.cores) for one in (points[9], points[10])] == [
            (16, 1.0), (9, 0.0),
        ]  # fmt: skip

    @pytest.mark.parametrize("first", [10, 10.002, 10.004])
    @pytest.mark.parametrize("last", [17, 17.002, 17.024])
    def test_of_gang_keeps_memory_if_nodes_end_moments_apart(
        self, first: float, last: float
    ) -> None:
        # Either rank may be sampled later. In its last sample the process has already ended.
        ranks = (
            node(row(10.002, 5, 60), row(17.002, 9)),
            node(row(first, 5, 60), row(last, 9), rank=1),
        )
        points = lease_points(samples(*ranks))
        assert {point.memory_bytes for point in points} <= {120, None}
        assert {point.memory_peak_bytes for point in points} <= {120, None}
        assert join_points(points).memory_bytes == 120

    def test_of_gang_keeps_memory_if_node_has_gap(self) -> None:
        whole = node(*(row(10 * n, n, 60) for n in range(1, 6)))
        for gap in (1, 3, 5):
            rows = (row(10 * n, n, None if n == gap else 40) for n in range(1, 6))
            points = lease_points(samples(whole, node(*rows, rank=1)))
            assert [point.memory_bytes for point in points] == [100] * 5

    def test_drops_memory_of_ended_node(self) -> None:
        lasting = node(*(row(10 * n, n, 60) for n in range(1, 6)))
        early = node(row(10, 1, 40), row(15, 2, 40), row(20.002, 2), rank=1)
        points = lease_points(samples(lasting, early))
        assert [point.memory_bytes for point in points] == pytest.approx([100, 100, 60.008, 60, 60])
        assert [point.memory_peak_bytes for point in points[3:]] == [60, 60]

    def test_averages_memory_of_node_over_its_runtime(self) -> None:
        points = lease_points(samples(node(row(10, 1, 60)), node(row(2, 1, 40), rank=1)))
        assert [(one.memory_bytes, one.memory_peak_bytes) for one in points] == [(68, 100)]

    def test_of_gang_keeps_gpu_memory_if_nodes_end_moments_apart(self) -> None:
        # The ranks use 5000 and 1000 MiB. In the last interval the second value is known for only 2
        # ms.
        ranks = (
            node(row(10, 5, None, 500), row(17.001, 9)),
            node(row(10.002, 5, None, 100), row(17, 9), rank=1),
        )
        first, last = lease_points(samples(*ranks))
        assert first.gpu_bytes == pytest.approx(3000 * MIB, rel=1e-3)
        assert last.gpu_bytes == pytest.approx(3000 * MIB, rel=1e-3)

    def test_ignores_time_claimed_after_its_end(self) -> None:
        honest = node(*(row(10 * n, 0, 7) for n in range(1, 11)))
        assert len(lease_points(samples(honest, node(row(10**6, 0, 9), rank=1), end_s=100))) == 10

    @pytest.mark.parametrize("moment_s", [0.004, 1])
    def test_has_no_spike_at_its_end(self, moment_s: float) -> None:
        rows = [row(10 * n, 5 * n, 60) for n in range(1, 4)]
        first, *_, last = points = lease_points(
            samples(node(*rows, row(30 + moment_s, 15 + 4 * moment_s)))
        )
        assert len(points) == 3
        assert last.end_us - first.begin_us == (30 + moment_s) * S_US
        assert last.cores == last.cores_peak
        assert last.cores * (10 + moment_s) == pytest.approx(5 + 4 * moment_s)
        assert (last.memory_bytes, last.memory_peak_bytes) == (60, 60)

    def test_last_interval_is_separate_point_if_long_enough(self) -> None:
        assert len(lease_points(samples(node(row(10, 5), row(20, 5), row(22, 5))))) == 3

    def test_is_in_pool_time(self) -> None:
        (point,) = lease_points(samples(node(row(10, 10)), scale=60))
        assert point.end_us - point.begin_us == 600 * S_US
        assert point.cores == 1.0

    @given(leases())
    def test_preserves_cpu_time_and_stays_within_lease(self, some: list[LeaseSamples]) -> None:
        for one in some:
            points = lease_points(one)
            ends = [one.begin_us, *(point.end_us for point in points)]
            assert all(point.begin_us == end for point, end in zip(points, ends, strict=False))
            assert ends == sorted(ends)
            assert ends[-1] <= one.end_us
            for point in points:
                numbers = (point.cores, point.memory_bytes, point.busy, point.gpu_bytes)
                assert all(n is None or (math.isfinite(n) and n >= 0) for n in numbers)
                assert point.busy is None or point.busy <= 1000
            until_ms = (one.end_us - one.begin_us) // (1000 * one.scale)
            if all(held.rows[-1].end_ms <= until_ms for held in one.nodes if held.rows):
                took = [p.cores * (p.end_us - p.begin_us) / one.scale / 1000 for p in points]
                used = sum(held.rows[-1].cpu_ms for held in one.nodes if held.rows)
                assert sum(took) == pytest.approx(used)


class TestUsagePoints:
    @given(leases(), st.integers(5, 30))
    def test_keep_peaks_within_requested_number(self, some: list[LeaseSamples], most: int) -> None:
        courses = [lease_points(one) for one in some]
        points = usage_points(courses, most)
        fine = [point for course in courses for point in course]
        assert len(points) <= most
        for name in ("cores_peak", "memory_peak_bytes", "gpu_peak_bytes"):
            every = [getattr(point, name) for point in fine]
            kept = [getattr(point, name) for point in points]
            assert max((one for one in kept if one is not None), default=None) == max(
                (one for one in every if one is not None), default=None
            )
        lows = [point.busy_low for point in fine if point.busy_low is not None]
        assert min((p.busy_low for p in points if p.busy_low is not None), default=None) == min(
            lows, default=None
        )
        for point in points:
            assert point.cores <= point.cores_peak * (1 + 1e-9)
        whole = sum(point.cores * (point.end_us - point.begin_us) for point in fine)
        assert sum(p.cores * (p.end_us - p.begin_us) for p in points) == pytest.approx(whole)

    @given(leases())
    def test_never_merge_two_leases(self, some: list[LeaseSamples]) -> None:
        points = usage_points([lease_points(one) for one in some], 5)
        for point, later in pairwise(points):
            assert point.end_us <= later.begin_us
        assert [point.lease for point in points] == sorted(point.lease for point in points)

    def test_reject_fewer_points_than_leases(self) -> None:
        with pytest.raises(ValueError, match="1 points are too few for 1 leases"):
            usage_points([[]], 1)

    def test_are_weighted_by_time(self) -> None:
        joined = join_points(lease_points(samples(node(row(10, 10, 10), row(40, 10, 50)))))
        assert (joined.cores, joined.cores_peak, joined.memory_bytes) == (0.25, 1.0, 40)


class TestIdleGpus:
    def test_are_idle_since_last_busy_sample(self) -> None:
        busy = [row(10 * n, 0, None, 900 if n <= 5 else 3) for n in range(1, 100)]
        assert idle_since_us(lease_points(samples(node(*busy))), 1, 1) == 10**10 + 50 * S_US

    def test_stay_idle_while_new_sample_is_pending(self) -> None:
        idle = [row(10 * n, 0, None, 0, 0) for n in range(1, 100)]
        for fresh in (row(995, 0), row(995, 0, None, 0, None)):
            assert idle_since_us(lease_points(samples(node(*idle, fresh))), 1, 2) == 10**10

    @pytest.mark.parametrize(
        "rows",
        [
            [],
            [row(10 * n, 0, None, 3) for n in range(1, 50)],  # idle, but for too short a time
            [row(10 * n, 0, None, 30) for n in range(1, 100)],  # the GPU is busy
            [row(10 * n, 0, None, None) for n in range(1, 100)],  # the use of the GPU is unknown
            # The last samples are missing.
            [row(10 * n, 0, None, *([3] if n < 97 else [])) for n in range(1, 100)],
        ],
    )
    def test_are_not_idle_without_enough_evidence(self, rows: list[SampledRow]) -> None:
        assert idle_since_us(lease_points(samples(node(*rows))), 1, 1) is None

    @pytest.mark.parametrize("other", [1000, None])
    def test_must_be_idle_on_all_nodes(self, other: int | None) -> None:
        idle = [row(10 * n, 0, None, *[0] * 8) for n in range(1, 100)]
        last = [row(10 * n, 0, None, *[0] * 7, other) for n in range(1, 100)]
        gang = [*(node(*idle, rank=rank) for rank in range(15)), node(*last, rank=15)]
        points = lease_points(samples(*gang))
        assert (points[0].busy or 0) < 10
        assert idle_since_us(points, 1, 128) is None
