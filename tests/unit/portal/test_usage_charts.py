"""Test charts of a job's usage: each known interval is drawn to its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from portal.charts.explore.job_usage import GIB, MIB, usage_charts
from scheduling.engine.executors.local_usage import GpuState
from scheduling.services.usage import JobUsage, LeaseUsage
from scheduling.services.usage_points import UsagePoint
from tests.plotly_figures import drawn

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def point(lease: int, begin_s: int, end_s: int, gib: float | None) -> UsagePoint:
    memory = None if gib is None else gib * GIB
    at = to_us(BEGIN)
    return UsagePoint(
        lease=lease, begin_us=at + begin_s * SECOND_US, end_us=at + end_s * SECOND_US, cores=1.0,
        cores_peak=1.0, memory_bytes=memory, memory_peak_bytes=memory,
    )  # fmt: skip


def memory_of(*points: UsagePoint) -> list[float | None]:
    lease = LeaseUsage(1, BEGIN, None, "a100", 1, 0, 1, 1, 2, GpuState.NONE, None, None, ())
    charts = usage_charts(JobUsage(leases=(lease,), points=points), gpus=1, file="job")
    (chart,) = (one for one in charts if one.key == "usage-memory")
    return [None if value is None else float(value) for value in chart.series[0].values]


class TestLeaseMemory:
    def test_holds_last_value_until_missing_sample(self) -> None:
        assert memory_of(point(1, 0, 10, 1.0), point(1, 10, 20, 2.0), point(1, 20, 25, None)) == [
            1.0, 2.0, 2.0, None,
        ]  # fmt: skip

    def test_single_sample_is_line(self) -> None:
        assert memory_of(point(1, 0, 10, 1.0), point(1, 10, 12, None)) == [1.0, 1.0, None]

    def test_has_gap_between_leases(self) -> None:
        values = memory_of(point(1, 0, 10, 1.0), point(1, 10, 12, None), point(2, 60, 70, 3.0))
        assert values == [1.0, 1.0, None, None, 3.0, 3.0]

    @pytest.mark.parametrize(
        ("gib", "unit", "value", "said"),
        [(57 * MIB / GIB, "MiB", 57.0, "57"), (1.5, "GiB", 1.5, "1.50")],
    )
    def test_uses_unit_of_title(self, gib: float, unit: str, value: float, said: str) -> None:
        lease = LeaseUsage(1, BEGIN, None, "a100", 1, 0, 1, 1, 2, GpuState.NONE, None, None, ())
        usage = JobUsage(leases=(lease,), points=(point(1, 0, 10, gib),))
        (chart,) = (one for one in usage_charts(usage, gpus=1, file="job") if "memory" in one.key)
        assert (chart.unit, chart.series[0].values[0]) == (unit, value)
        assert chart.title == f"Memory: at most {said} {unit}"
        assert [label.text for label in chart.labels] == [said]


class TestLeaseLabels:
    def test_have_room_above_drawing(self) -> None:
        def top(*numbers: int) -> int:
            leases = tuple(
                LeaseUsage(n, BEGIN + timedelta(minutes=n), None, "a100", 1, 0, 1, 1, 2,
                           GpuState.NONE, None, point(n, 60 * n, 60 * n + 30, 1.0), ())
                for n in numbers
            )  # fmt: skip
            points = tuple(lease.mean for lease in leases if lease.mean is not None)
            (chart, _) = usage_charts(JobUsage(leases=leases, points=points), gpus=1, file="job")
            assert [rule.text for rule in chart.rules] == (
                [f"lease {n}" for n in numbers] if len(numbers) > 1 else []
            )
            return int(drawn(chart).layout.margin.t)

        # The margin holds a line of text of 14 pixels and its distance from the drawing.
        assert top(1, 2) >= 24
        assert top(1) == 16


def gpu_texts(gpus: int, some: int) -> list[str]:
    at = to_us(BEGIN)
    lease = LeaseUsage(1, BEGIN, None, "a100", gpus, some, 1, 1, 2, GpuState.OK, 78 * GIB, None, ())
    used = UsagePoint(
        lease=1, begin_us=at, end_us=at + SECOND_US, cores=1.0, cores_peak=1.0, busy=500.0,
        busy_low=400.0, busy_high=600.0, gpus_known=some, gpu_bytes=GIB, gpu_peak_bytes=2.0 * GIB,
    )  # fmt: skip
    charts = usage_charts(JobUsage(leases=(lease,), points=(used,)), gpus=gpus, file="job")
    return [one.text for one in charts if one.key in ("usage-gpu", "usage-gpu-memory")]


HIGHEST = "Dotted: the highest samples."


class TestGpuTexts:
    def test_are_singular_for_one_gpu(self) -> None:
        assert gpu_texts(1, 1) == [
            "The share of time in which a kernel ran on the GPU. Dotted: the lowest samples.",
            f"Memory used on the job's GPU. {HIGHEST} The memory of a GPU: 78 GiB.",
        ]

    def test_name_number_of_reporting_gpus(self) -> None:
        assert gpu_texts(8, 8)[0].startswith("Mean over the job's 8 GPUs: the share of time")
        assert gpu_texts(8, 3)[0].startswith("Mean over 3 of the job's 8 GPUs: the share")
