"""Test how clock jumps and sleep are detected, on clocks that the test moves."""

from __future__ import annotations

import pytest

from portal.embedded.clocks import ClockReading, jumped_s, read_clocks, slept_s


@pytest.mark.parametrize(
    ("wall_s", "steady_s", "with_sleep_s", "jumped", "slept"),
    [
        (2, 2, 2, 0, 0),
        # much time passed between two reads, which is neither a jump nor sleep
        (300, 300, 300, 0, 0),
        (3602, 2, 2, 3600, 0),
        (-598, 2, 2, -600, 0),
        (3602, 2, 3602, 0, 3600),
        (3002, 2, 3602, -600, 3600),  # the machine slept, and its clock was set back when it woke
        (4, 2, 2, 0, 0),  # the clock is being corrected gradually
    ],
)
def test_jump_and_sleep_are_distinguished(
    wall_s: float, steady_s: float, with_sleep_s: float, jumped: float, slept: float
) -> None:
    before = ClockReading(1e9, 50.0, 70.0)
    now = ClockReading(1e9 + wall_s, 50.0 + steady_s, 70.0 + with_sleep_s)
    assert jumped_s(before, now) == pytest.approx(jumped)
    assert slept_s(before, now) == pytest.approx(slept)


def test_real_clocks_move_forward() -> None:
    before, now = read_clocks(), read_clocks()
    assert now.steady_s >= before.steady_s
    assert jumped_s(before, before) == slept_s(before, before) == 0
