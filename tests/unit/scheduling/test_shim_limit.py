"""Test how long a job's process runs without orders, on clocks that the test moves."""

from __future__ import annotations

import pytest

from scheduling.engine.executors.shim.holder import Limit

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("wall_s", "steady_s", "is_past"),
    [
        (99.0, 99.0, False),
        (101.0, 101.0, True),
        (1.0 + HOUR_S, 1.0, False),  # the clock jumped an hour ahead
        (1.0 + HOUR_S, 101.0, True),
        (1.0 - 600.0, 1.0, False),  # the clock was set back by ten minutes
        (101.0 - 600.0, 101.0, True),
        (HOUR_S, 2.0, False),  # the machine slept
    ],
)
def test_limit_passes_by_elapsed_time_despite_clock_jumps(
    *, wall_s: float, steady_s: float, is_past: bool
) -> None:
    limit = Limit()
    assert not limit.is_past(100.0, wall_s=0.0, steady_s=0.0)
    assert limit.is_past(100.0, wall_s=wall_s, steady_s=steady_s) is is_past


def test_renewal_extends_limit_after_clock_jump() -> None:
    limit = Limit()
    assert not limit.is_past(100.0, wall_s=0.0, steady_s=0.0)
    renewed_s = HOUR_S + 190.0
    assert not limit.is_past(renewed_s, wall_s=HOUR_S + 90.0, steady_s=90.0)
    assert not limit.is_past(renewed_s, wall_s=HOUR_S + 180.0, steady_s=180.0)
    assert limit.is_past(renewed_s, wall_s=HOUR_S + 191.0, steady_s=191.0)


def test_limit_in_past_passes_at_once() -> None:
    assert Limit().is_past(100.0, wall_s=200.0, steady_s=0.0)


def test_infinite_limit_never_passes() -> None:
    assert not Limit().is_past(float("inf"), wall_s=0.0, steady_s=1e12)
