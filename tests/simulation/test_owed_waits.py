"""Test the measure of `benchmarks.owed_waits` on a node of 8 GPUs that another tenant holds."""

from __future__ import annotations

import pytest

from benchmarks.owed_waits import Waits, WaitSpan, joined, stream_of, waits_of
from evenshare_core.units import SECOND_US
from tests.simulation.promise_adversary import Case, JobSpec

HOLDER = JobSpec(2, 8, 0, 1500)
GANG = JobSpec(1, 8, 100, 600)


def waits(*jobs: JobSpec, quota: int = 8) -> Waits:
    """Run jobs under `fifo`, which ends no lease; tenant 1 has the quota."""
    longest_us, first_us = waits_of("fifo", stream_of("", Case((8,), (quota, 0), jobs, 30, 300)))
    return Waits(longest_us // SECOND_US, first_us // SECOND_US)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param((HOLDER, GANG), Waits(1400, 1400), id="until it starts"),
        # An older job of its tenant runs from 1500 to 2100 s.
        pytest.param((HOLDER, JobSpec(1, 1, 50, 600), GANG), Waits(2000, 600), id="behind a job"),
        pytest.param((HOLDER, GANG._replace(gpus=1)), Waits(0, 0), id="no gang"),
        pytest.param((HOLDER, JobSpec(2, 8, 100, 600)), Waits(0, 0), id="of tenant without quota"),
        # The tenant receives 8 GPUs until 600 s, so it is owed none.
        pytest.param((JobSpec(1, 8, 0, 600), GANG), Waits(0, 0), id="received enough"),
        pytest.param((JobSpec(2, 8, 0, 9000), GANG), Waits(2900, 2900), id="until the run ends"),
    ],
)
def test_counts_waits_of_owed_gangs(jobs: tuple[JobSpec, ...], expected: Waits) -> None:
    assert waits(*jobs) == expected


def test_counts_time_until_missing_gpu_time_is_received() -> None:
    """With a quota of 4, the tenant lacks 4 x 900 GPU-seconds, and gets 4 x 1 per second."""
    jobs = (JobSpec(2, 8, 0, 900), JobSpec(1, 8, 0, 3000), JobSpec(1, 8, 0, 600))
    assert waits(*jobs, quota=4) == Waits(1800, 900)


def test_joins_spans() -> None:
    assert joined([WaitSpan(0, 2), WaitSpan(2, 5), WaitSpan(6, 7)]) == [
        WaitSpan(0, 5),
        WaitSpan(6, 7),
    ]
