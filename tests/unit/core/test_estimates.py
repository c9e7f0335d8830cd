"""Test a job's remaining work, with and without an estimate."""

from __future__ import annotations

import pytest

from evenshare_core.domain.snapshot import JobService
from evenshare_core.policies.shared.estimates import remaining_us, whole_us
from tests.unit.core.snapshots import job


@pytest.mark.parametrize(("estimate_us", "whole"), [(None, 70), (0, 1), (5, 5)])
def test_job_without_estimate_uses_given_default(estimate_us: int | None, whole: int) -> None:
    assert whole_us(job(1, 2, estimate_us=estimate_us), 70) == whole


@pytest.mark.parametrize(
    ("ran_us", "left_us"), [(0, 1000), (400, 600), (950, 50), (990, 50), (5000, 50)]
)
def test_job_past_its_estimate_needs_fraction_of_it(ran_us: int, left_us: int) -> None:
    """The job ran on 2 GPUs, and half of its GPU-time is from before its current lease."""
    sums = JobService(1, 1, "v100", 2, 1, 0, alloc_gpu_us=ran_us, held=2, held_since_us=7)
    at_us = 7 + ran_us // 2
    assert remaining_us(job(1, 2), sums, at_us, 1000) == left_us


def test_remaining_work_is_at_least_one() -> None:
    sums = JobService(1, 1, "v100", 2, 1, 0, alloc_gpu_us=99)
    assert remaining_us(job(1, 2), sums, 0, 3) == 1
