"""Test exponentially decayed sums: their value after skipped idle rounds, and their decay rate."""

from __future__ import annotations

import json
import random
from math import exp

from msgspec.structs import replace

from evenshare_core.domain.snapshot import ClaimService
from evenshare_core.policies.evenshare.memory import BITS, DECAY, MARKS, DecayedSums
from evenshare_core.units import HOUR_US, SECOND_US

ROUND_US = 10 * SECOND_US


def later(row: ClaimService, at_us: int) -> ClaimService:
    """Return the sums at a later time with an unchanged claim."""
    span_us = at_us - row.since_us
    return replace(
        row,
        since_us=at_us,
        alloc_gpu_us=row.alloc_gpu_us + row.held * span_us,
        fair_gpu_us=row.fair_gpu_us + min(row.demand, row.quota) * span_us,
    )


class TestDecay:
    def test_factor_is_1_over_e_after_one_window(self) -> None:
        assert abs(DECAY / 2**BITS - exp(-1 / MARKS)) < 2**-BITS
        sums = DecayedSums(HOUR_US)
        row = ClaimService(1, "v100", 0, quota=4, demand=9, held=2)
        sums.begin({}, [row], 0, ROUND_US)
        sums.begin(sums.memory, [later(row, HOUR_US)], HOUR_US, ROUND_US)
        idle = replace(later(row, HOUR_US), held=0, demand=0)
        then = sums.sums(later(row, HOUR_US))
        # After one window with 2 GPUs, 1 - 1/e of the GPU-time remains. Deserved GPU-time is twice
        # that.
        assert abs(then[0] / (2 * HOUR_US) - (1 - exp(-1))) < 0.01
        assert abs(then[1] - 2 * then[0]) <= 2 * MARKS
        sums.begin(sums.memory, [idle], HOUR_US, ROUND_US)
        end = later(idle, 2 * HOUR_US)
        sums.begin(sums.memory, [end], 2 * HOUR_US, ROUND_US)
        assert abs(sums.sums(end)[0] / then[0] - exp(-1)) < 0.001

    def test_sums_decay_to_zero(self) -> None:
        sums = DecayedSums(HOUR_US)
        row = ClaimService(1, "v100", 0, quota=4, demand=9, held=2)
        sums.begin({}, [row], 0, ROUND_US)
        busy = later(row, 50 * HOUR_US)
        sums.begin(sums.memory, [busy], 50 * HOUR_US, ROUND_US)
        idle = replace(busy, held=0, demand=0)
        sums.begin(sums.memory, [idle], 50 * HOUR_US, ROUND_US)
        end = later(idle, 10_000 * HOUR_US)
        sums.begin(sums.memory, [end], 10_000 * HOUR_US, ROUND_US)
        assert sums.sums(end) == (0, 0)

    def test_starts_at_zero_for_new_policy(self) -> None:
        row = ClaimService(1, "v100", 5, 4, 9, 0, 2, 777, 999)
        sums = DecayedSums(HOUR_US)
        sums.begin({}, [row], 5, ROUND_US)
        assert sums.sums(row) == (0, 0)
        other = ClaimService(2, "v100", 5, 4, 9, 0, 2, 33, 44)
        sums.begin(sums.memory, [row, other], 5, ROUND_US)
        assert sums.sums(other) == (33, 44)  # a claim that started after the last round


class TestMemory:
    def test_is_unaffected_by_skipped_idle_rounds(self) -> None:
        """Rounds on the grid are skipped if no claim changed since the previous round."""
        for seed in range(30):
            rng = random.Random(seed)  # noqa: S311 - a test's seed
            window_us = rng.choice((600, 3_600, 86_400)) * SECOND_US
            every, some = DecayedSums(window_us), DecayedSums(window_us)
            rows = [ClaimService(one, "v100", 0, quota=5) for one in (1, 2)]
            changed = True
            for number in range(400):
                at_us = number * ROUND_US
                rows = [later(row, at_us) for row in rows]
                every.begin(every.memory, rows, at_us, ROUND_US)
                if changed or rng.random() < 0.1:
                    some.begin(json.loads(json.dumps(some.memory)), rows, at_us, ROUND_US)
                    assert some.memory == every.memory
                    assert [some.sums(row) for row in rows] == [every.sums(row) for row in rows]
                changed = rng.random() < 0.05
                if changed:  # the change may come at any time before the next round
                    between_us = at_us + rng.randrange(ROUND_US)
                    rows = [
                        replace(
                            later(row, between_us), held=rng.randrange(9), demand=rng.randrange(9)
                        )
                        for row in rows
                    ]

    def test_is_same_object_without_changes(self) -> None:
        sums = DecayedSums(HOUR_US)
        row = ClaimService(1, "v100", 0, quota=4, demand=9, held=2)
        sums.begin({}, [row], 0, ROUND_US)
        sums.begin(sums.memory, [row], ROUND_US, ROUND_US)
        before = sums.memory
        sums.begin(before, [later(row, 2 * ROUND_US)], 2 * ROUND_US, ROUND_US)
        assert sums.memory is before
